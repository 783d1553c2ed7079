"""Token ids to text as they come, exactly; this module knows ids and text, never stops.

Law: the pieces of `feed`, joined with `flush`, are `tokenizer.decode` of all ids (with a prompt:
what `decode(prompt + ids)` adds to `decode(prompt)`), and nothing is sent that a later id would
change.
"""

from collections.abc import Sequence
from typing import Protocol

from headwater.text.byte_stream import ByteStream
from headwater.text.piece_stream import PieceStream
from headwater.text.tokenizer import Tokenizer
from headwater.text.window_stream import WindowStream

__all__ = ["CONTEXT_LEN", "DecodeStream", "feed_each"]

CONTEXT_LEN = 64  # prompt ids that are looked at; the first step after a long prompt stays cheap

_NOT_READY: dict[int, str] = {}  # stays empty


class _Method(Protocol):
    """How ids become text; see the modules of the three."""

    @property
    def is_open(self) -> bool: ...

    @property
    def is_at_rest(self) -> bool: ...

    def step(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


class DecodeStream:
    """Turns a growing list of token ids into text pieces that join to the decoded whole.

    Args:
        tokenizer: The model's tokenizer.
        skip_special_tokens: Leave special tokens out of the text.
        spaces_between_special_tokens: Accepted for both values, which mean the same: a
            tokenizer.json decoder puts no space of its own between special tokens.
        prompt_ids: Ids before the answer; only their end is used, as left context.
    """

    __slots__ = ("_at_rest", "_method", "_pieces", "_ready")

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
        table = tokenizer.pieces(skip_special_tokens=skip_special_tokens)
        self._method: _Method
        if table is None:

            def decode(ids: list[int]) -> str:
                return tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

            self._method = WindowStream(decode, context)
            self._at_rest = _NOT_READY
        else:
            stream = ByteStream if table.plan.is_byte_level else PieceStream
            self._method = stream(table, context)
            self._at_rest = table.ready
        self._ready = self._at_rest if self._method.is_at_rest else _NOT_READY
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
        return self._method.is_open

    def feed(self, ids: Sequence[int]) -> str:
        """Take the next ids, in any grouping; return the text that later ids cannot change."""
        if len(ids) == 1:
            return self._step(ids[0])
        return "".join([self._step(token_id) for token_id in ids])

    def flush(self) -> str:
        """End of the answer: return what was held back, incomplete characters as U+FFFD."""
        piece = self._method.flush()
        self._pieces.append(piece)
        return piece

    def _step(self, token_id: int) -> str:
        piece = self._ready.get(token_id)
        if piece is None:
            method = self._method
            piece = method.step(token_id)
            self._ready = self._at_rest if method.is_at_rest else _NOT_READY
        self._pieces.append(piece)
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
        piece = stream._ready.get(token_id)
        if piece is None:
            piece = stream._step(token_id)
        else:
            stream._pieces.append(piece)
        out.append(piece)
    return out
