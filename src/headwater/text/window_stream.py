"""Incremental detokenization with two offsets: the general method, and the slow twin of the others.

Decode the window from `surr_offset`, subtract the text of `[surr_offset:read_offset]`, and confirm
the rest unless it ends in U+FFFD, which later ids may turn into a character.
"""

from collections.abc import Callable, Sequence

__all__ = ["WindowStream"]

_REPLACEMENT = "\ufffd"
# A character has at most four bytes: what is still U+FFFD after this many ids stays so. It bounds
# the window, and with it the cost of an id.
_MAX_OPEN_IDS = 16
_MAX_SILENT_IDS = 32  # ids without text, as skipped specials


class WindowStream:
    """One answer, decoded window by window.

    Args:
        decode: Ids to text.
        prompt_ids: Left context.
    """

    def __init__(self, decode: Callable[[list[int]], str], prompt_ids: Sequence[int]) -> None:
        self._decode = decode
        self._ids = list(prompt_ids)
        self._surr_offset = 0
        self._read_offset = len(self._ids)

    @property
    def is_open(self) -> bool:
        """True while ids are held back because their character may not be complete."""
        return self._read_offset < len(self._ids) and self._pending().endswith(_REPLACEMENT)

    def step(self, token_id: int) -> str:
        """Take one id; return the text that is known now."""
        self._ids.append(token_id)
        piece = self._pending()
        num_open = len(self._ids) - self._read_offset
        if piece and (not piece.endswith(_REPLACEMENT) or num_open >= _MAX_OPEN_IDS):
            self._confirm()
            return piece
        if not piece and num_open >= _MAX_SILENT_IDS:
            # Keep one id of them as context; the rest says nothing.
            del self._ids[self._read_offset : -1]
        return ""

    def flush(self) -> str:
        """End of the answer: return what was held back."""
        piece = self._pending()
        self._confirm()
        return piece

    def _pending(self) -> str:
        known = self._decode(self._ids[self._surr_offset : self._read_offset])
        return self._decode(self._ids[self._surr_offset :])[len(known) :]

    def _confirm(self) -> None:
        # Ids before the window are never needed again.
        del self._ids[: self._read_offset]
        self._surr_offset, self._read_offset = 0, len(self._ids)
