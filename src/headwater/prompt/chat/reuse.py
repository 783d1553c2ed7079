"""Ids of pieces of text that were encoded before: a conversation's earlier turns come back.

It knows texts, cuts and ids; whether cutting is exact is for `text.cuts` to say.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator

from headwater.text.cuts import SafeCuts

__all__ = ["PieceCache"]

_MIN_CHARS = 64  # shorter pieces are joined: each call and each entry has its price


class PieceCache:
    """The pieces used last, bounded by their characters. It can be used from several threads.

    Args:
        max_chars: Characters that are kept in all.
    """

    def __init__(self, *, max_chars: int) -> None:
        self._max_chars = max_chars
        self._num_chars = 0
        self._ids: OrderedDict[str, array[int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_chars(self) -> int:
        """Characters kept."""
        return self._num_chars

    def encode(self, cuts: SafeCuts, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Ids of a text, of which only pieces not met before are encoded.

        Args:
            cuts: Where the text can be cut.
            text: What is encoded.
            encode: Encodes one piece.
        """
        if not cuts.are_exact:
            return encode(text)
        ids: list[int] = []
        for piece in _joined(cuts.split(text)):
            ids.extend(self._find(piece) or self._keep(piece, encode(piece)))
        return ids

    def _find(self, piece: str) -> "array[int] | None":
        with self._lock:
            found = self._ids.get(piece)
            if found is not None:
                self._ids.move_to_end(piece)
            return found

    def _keep(self, piece: str, ids: list[int]) -> list[int]:
        if not _MIN_CHARS <= len(piece) <= self._max_chars:
            return ids
        with self._lock:
            if piece not in self._ids:
                self._ids[piece] = array("I", ids)
                self._num_chars += len(piece)
            while self._num_chars > self._max_chars:
                oldest, _ = self._ids.popitem(last=False)
                self._num_chars -= len(oldest)
        return ids


def _joined(pieces: list[str]) -> Iterator[str]:
    """Pieces, of which short ones are joined with those behind them."""
    waiting = ""
    for piece in pieces:
        waiting += piece
        if len(waiting) >= _MIN_CHARS:
            yield waiting
            waiting = ""
    if waiting:
        yield waiting
