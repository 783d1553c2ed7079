"""Tokens that are pieces of text: SentencePiece, Metaspace, WordPiece, suffix BPE, no decoder.

It is `decode` of the whole for any ids. What has to be held back: a run of byte tokens until it
ends (one bad byte makes every byte of the run a U+FFFD), and the space of an end-of-word suffix
until another token follows.
"""

import codecs
from collections.abc import Sequence

from headwater.text.piece_table import PieceTable

__all__ = ["PieceStream"]

_REPLACEMENT = "\ufffd"
_DECODER = codecs.getincrementaldecoder("utf-8")


class PieceStream:
    """One answer's pieces.

    Args:
        table: The tokenizer's pieces.
        prompt_ids: Left context.
    """

    def __init__(self, table: PieceTable, prompt_ids: Sequence[int]) -> None:
        self._table = table
        self._plan = table.plan
        self._is_first = True
        self._strip = table.plan.strip[1]
        self._suffix_space = False
        self._run: _Run | None = None
        if prompt_ids:
            self._prime(prompt_ids)

    @property
    def is_open(self) -> bool:
        """True while a run of byte tokens has not ended."""
        return self._run is not None and self._run.holds

    @property
    def is_at_rest(self) -> bool:
        """True when a ready piece can be sent as it is."""
        return (
            not self._is_first
            and self._run is None
            and self._strip == 0
            and not self._suffix_space
            and not self._plan.suffix
        )

    def step(self, token_id: int) -> str:
        """Take one id; return the text that is known now."""
        table = self._table
        byte = table.run.get(token_id)
        if byte is not None:
            if self._run is None:
                self._run = _Run()
            self._is_first = False
            return self._cut(self._run.feed(byte))
        if token_id in table.ready and not self._is_first and not self._plan.suffix:
            return self._end_run() + self._cut(table.ready[token_id])
        if token_id in table.nothing:
            return ""
        token = table.token(token_id)
        if token is None or token_id not in table.ready:
            table.learn(token_id)
            if token_id in table.nothing or token_id in table.run:
                return self.step(token_id)
        assert token is not None
        return self._end_run() + self._cut(self._piece(token))

    def flush(self) -> str:
        """End of the answer: a run ends with it."""
        return self._end_run()

    def _piece(self, token: str) -> str:
        """Text of a token with regard to its place."""
        plan = self._plan
        is_first, self._is_first = self._is_first, False
        if plan.suffix:
            before, self._suffix_space = self._suffix_space, token.endswith(plan.suffix)
            body = token.removesuffix(plan.suffix).replace(plan.suffix, " ")
            return (" " if before else "") + body
        return plan.first(token) if is_first else plan.later(token)

    def _end_run(self) -> str:
        if self._run is None:
            return ""
        text, self._run = self._run.end(), None
        return self._cut(text)

    def _cut(self, text: str) -> str:
        """Text after the decoder's last steps: single characters replaced, the start stripped."""
        text = self._plan.after_run(text)
        char = self._plan.strip[0]
        while self._strip and text:
            if text[0] != char:
                self._strip = 0
                break
            text = text[1:]
            self._strip -= 1
        return text

    def _prime(self, prompt_ids: Sequence[int]) -> None:
        """Take the prompt as context: what it says is not part of the answer."""
        has_text = False
        for token_id in prompt_ids:
            self.step(token_id)
            has_text = has_text or not self._is_first
        if self._run is not None:
            self._run.begin_answer()
        if has_text:
            self._strip = 0


class _Run:
    """A run of byte tokens.

    Attributes:
        holds: Bytes wait for the run's end.
    """

    def __init__(self) -> None:
        self._decoder = _DECODER(errors="strict")
        self._text: list[str] = []
        self._num_bytes = 0
        self._is_bad = False
        self._num_prompt_bytes = 0
        self._prompt_text_len = 0
        self.holds = False

    def feed(self, byte: int) -> str:
        """Take a byte; text leaves only when the run is known to be bad."""
        self._num_bytes += 1
        if self._is_bad:
            return _REPLACEMENT
        try:
            self._text.append(self._decoder.decode(bytes([byte])))
        except UnicodeDecodeError:
            return self._break()
        self.holds = True
        return ""

    def end(self) -> str:
        """The run has ended: its text, as far as it has not left."""
        if self._is_bad:
            return ""
        if self._decoder.getstate()[0]:
            return self._break()
        return "".join(self._text)[self._prompt_text_len :]

    def begin_answer(self) -> None:
        """What came so far was the prompt's."""
        self._num_prompt_bytes = self._num_bytes
        self._prompt_text_len = sum(map(len, self._text))
        self.holds = False

    def _break(self) -> str:
        self._is_bad, self.holds = True, False
        return _REPLACEMENT * (self._num_bytes - self._num_prompt_bytes)
