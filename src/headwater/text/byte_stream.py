"""Byte-level tokens to text: an incremental UTF-8 decoder over ready-made pieces.

It is `decode` of the whole for any ids: the decoder concatenates the tokens' bytes and replaces
each maximal invalid piece by one U+FFFD, which is what Python's decoder does, byte by byte.
"""

import codecs
from collections.abc import Sequence

from headwater.text.piece_table import PieceTable

__all__ = ["ByteStream"]

_REPLACEMENT = "\ufffd"
_DECODER = codecs.getincrementaldecoder("utf-8")


class ByteStream:
    """One answer's bytes.

    Args:
        table: The tokenizer's pieces.
        prompt_ids: Left context.
    """

    def __init__(self, table: PieceTable, prompt_ids: Sequence[int]) -> None:
        self._table = table
        self._decoder = _DECODER(errors="replace")
        self._pending = b""
        self._is_prompt_open = False
        for token_id in prompt_ids:
            self.step(token_id)
        # A character that the prompt left open: its U+FFFD belongs to the prompt's own text.
        self._is_prompt_open = bool(self._pending)

    @property
    def is_open(self) -> bool:
        """True while a character is not complete."""
        return bool(self._pending)

    @property
    def is_at_rest(self) -> bool:
        """True when a ready piece can be sent as it is."""
        return not self._pending

    def step(self, token_id: int) -> str:
        """Take one id; return the text that is known now."""
        table = self._table
        text = table.ready.get(token_id)
        if text is not None:
            return text if not self._pending else self._decode(text.encode())
        data = table.data.get(token_id)
        if data is not None:
            return self._decode(data)
        if token_id in table.nothing:
            return ""
        table.learn(token_id)
        return self.step(token_id)

    def flush(self) -> str:
        """End of the answer: an incomplete character is U+FFFD."""
        return self._drop_prompts(self._decoder.decode(b"", True))

    def _decode(self, data: bytes) -> str:
        text = self._decoder.decode(data)
        self._pending = self._decoder.getstate()[0]
        return self._drop_prompts(text)

    def _drop_prompts(self, text: str) -> str:
        if text and self._is_prompt_open:
            self._is_prompt_open = False
            return text.removeprefix(_REPLACEMENT)
        return text
