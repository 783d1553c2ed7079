"""Incremental detokenization with two offsets; this module knows ids and text, never stops.

The general method: decode the window from `surr_offset`, subtract the text of
`[surr_offset:read_offset]`, and confirm the rest unless it ends in U+FFFD.
"""

from collections.abc import Sequence

from headwater.text.tokenizer import Tokenizer

__all__ = ["DecodeStream"]

_REPLACEMENT = "\ufffd"
_CONTEXT_IDS = 5  # left context that a decoder may look at, as in SGLang


class DecodeStream:
    """Turns a growing list of token ids into text pieces that join to the decoded whole.

    Args:
        tokenizer: The model's tokenizer.
        skip_special_tokens: Leave special tokens out of the text.
        spaces_between_special_tokens: Accepted for both values; tokenizer.json decoders put no
            spaces of their own between special tokens.
        prompt_ids: Ids before the answer; only their end is used, as left context.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        prompt_ids: Sequence[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._ids = list(prompt_ids[-_CONTEXT_IDS:])
        self._surr_offset = 0
        self._read_offset = len(self._ids)
        self.text = ""

    @property
    def is_open(self) -> bool:
        """True while the last ids are held back because their character is not complete."""
        return self._read_offset < len(self._ids) and self._pending().endswith(_REPLACEMENT)

    def feed(self, ids: Sequence[int]) -> str:
        """Take the next ids, in any grouping; return the text that later ids cannot change."""
        pieces = []
        for token_id in ids:
            self._ids.append(token_id)
            piece = self._pending()
            if piece and not piece.endswith(_REPLACEMENT):
                self._confirm()
                pieces.append(piece)
        out = "".join(pieces)
        self.text += out
        return out

    def flush(self) -> str:
        """End of the answer: return what was held back, incomplete characters as U+FFFD."""
        piece = self._pending()
        self._confirm()
        self.text += piece
        return piece

    def _pending(self) -> str:
        """Text of the ids that are not confirmed yet."""
        known = self._decode(self._ids[self._surr_offset : self._read_offset])
        return self._decode(self._ids[self._surr_offset :])[len(known) :]

    def _confirm(self) -> None:
        self._surr_offset = self._read_offset
        self._read_offset = len(self._ids)

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip_special_tokens)
