"""Stop strings over streamed text; this module knows text, never token ids.

Text that could still become a stop string is held back; everything else leaves at once.
"""

from collections.abc import Sequence

__all__ = ["StopMatcher"]


class StopMatcher:
    """Finds the earliest of several stop strings, whatever the cut of the text.

    The stop string that is complete first wins, which is all that a stream can know; of several
    that end at the same character, the longest. After a match nothing more is returned.

    The work for a piece is a search for each stop string in the piece and what was held back.

    Args:
        stops: The stop strings, none of them empty.
        keep: Return the matched stop string as part of the text instead of cutting it off.

    Attributes:
        matched: The stop string that was found, or None.

    Raises:
        ValueError: A stop string is empty.
    """

    def __init__(self, stops: Sequence[str], *, keep: bool = False) -> None:
        if any(not stop for stop in stops):
            raise ValueError("a stop string must not be empty")
        # Longest first: of those that end together the first one found is the right one.
        self._stops = sorted(dict.fromkeys(stops), key=len, reverse=True)
        self._keep = keep
        self._held = ""
        self._num_unarmed = 0  # characters of the held text in which no stop may end
        self.matched: str | None = None

    def feed(self, piece: str, *, armed: bool = True) -> str:
        """Take the next piece; return what is now known not to belong to a stop string.

        Args:
            piece: New text.
            armed: False: a stop string that is completed in this piece does not count.
        """
        if self.matched is not None or not piece:
            return ""
        text = self._held + piece
        if armed:
            end = self._find(text)
            if end is not None:
                assert self.matched is not None
                self._held = ""
                return text[:end] if self._keep else text[: end - len(self.matched)]
        else:
            self._num_unarmed = len(text)
        cut = len(text) - self._open_len(text)
        self._held = text[cut:]
        self._num_unarmed = max(self._num_unarmed - cut, 0)
        return text[:cut]

    def flush(self) -> str:
        """End of the answer: return what was held back."""
        held, self._held = self._held, ""
        return held

    def _find(self, text: str) -> int | None:
        """Where the stop string that is complete first ends; sets `matched`."""
        first: int | None = None
        for stop in self._stops:
            # One that ends before this place has been seen, and did not count.
            start = max(self._num_unarmed - len(stop) + 1, 0)
            limit = len(text) if first is None else first - 1
            at = text.find(stop, start, limit)
            if at >= 0:
                first, self.matched = at + len(stop), stop
        return first

    def _open_len(self, text: str) -> int:
        """Length of the longest suffix of the text that begins a stop string."""
        longest = 0
        for stop in self._stops:
            start = max(len(text) - len(stop) + 1, 0)
            while (at := text.find(stop[0], start)) >= 0 and len(text) - at > longest:
                if stop.startswith(text[at:]):
                    longest = len(text) - at
                    break
                start = at + 1
        return longest
