"""Token ids to text as they come, exactly; this module knows ids and text, never stops.

Law: the pieces of `feed`, joined with `flush`, are `tokenizer.decode` of all ids (with a prompt:
what `decode(prompt + ids)` adds to `decode(prompt)`), and nothing is sent that a later id would
change.
"""

from collections.abc import Sequence

from headwater.text.automaton import Automaton, State
from headwater.text.tokenizer import Tokenizer
from headwater.text.window_stream import WindowStream

__all__ = ["CONTEXT_LEN", "DecodeStream", "feed_each"]

CONTEXT_LEN = 64  # prompt ids that are looked at; the first step after a long prompt stays cheap


class DecodeStream:
    """Turns a growing list of token ids into text pieces that join to the decoded whole.

    Args:
        tokenizer: The model's tokenizer.
        skip_special_tokens: Leave special tokens out of the text.
        spaces_between_special_tokens: Accepted for both values, which mean the same: a
            tokenizer.json decoder puts no space of its own between special tokens.
        prompt_ids: Ids before the answer; only their end is used, as left context.
    """

    __slots__ = ("_automaton", "_pieces", "_state", "_window")

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        prompt_ids: Sequence[int] = (),
    ) -> None:
        del spaces_between_special_tokens
        context = prompt_ids[-CONTEXT_LEN:]
        automaton = tokenizer.automaton(skip_special_tokens=skip_special_tokens)
        self._automaton: Automaton | None = automaton
        self._window: WindowStream | None = None
        self._state: State
        if automaton is not None:
            self._state = automaton.start(context)
        else:

            def decode(ids: list[int]) -> str:
                try:
                    return tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
                except ValueError:  # a decoder that fails on a window may still do on the whole
                    return ""

            self._window = WindowStream(decode, context)
            self._state = State(None, is_open=False)  # stays empty: every id takes `_step`
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """All text so far."""
        whole = "".join(self._pieces)
        self._pieces = [whole]
        return whole

    @property
    def is_open(self) -> bool:
        """True while the last ids are held back because their text is not complete."""
        return self._state.is_open if self._window is None else self._window.is_open

    def feed(self, ids: Sequence[int]) -> str:
        """Take the next ids, in any grouping; return the text that later ids cannot change."""
        if len(ids) == 1:
            piece = self._step(ids[0])
        else:
            piece = "".join([self._step(token_id) for token_id in ids])
        self._pieces.append(piece)
        return piece

    def flush(self) -> str:
        """End of the answer: return what was held back, incomplete characters as U+FFFD."""
        if self._window is not None:
            piece = self._window.flush()
        else:
            assert self._automaton is not None
            piece = self._automaton.finish(self._state)
        self._pieces.append(piece)
        return piece

    def _step(self, token_id: int) -> str:
        if self._window is not None:
            return self._window.step(token_id)
        assert self._automaton is not None
        piece, self._state = self._automaton.advance(self._state, token_id)
        return piece


def feed_each(streams: Sequence[DecodeStream], ids: Sequence[int]) -> list[str]:
    """One id for each of many streams: a step of a batch, at the price of a look-up each.

    Args:
        streams: The streams.
        ids: The next id of each.

    Returns:
        The text of each.
    """
    out = []
    for stream, token_id in zip(streams, ids, strict=True):
        try:
            piece, stream._state = stream._state[token_id]
        except KeyError:
            piece = stream._step(token_id)
        stream._pieces.append(piece)
        out.append(piece)
    return out
