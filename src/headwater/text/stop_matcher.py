"""Stop strings over streamed text; this module knows text, never token ids.

Text that could still become a stop string is held back; everything else leaves at once.
"""

from collections.abc import Sequence

__all__ = ["StopMatcher"]


class StopMatcher:
    """Finds the earliest of several stop strings, whatever the cut of the text.

    The stop string that is complete first wins, which is all that a stream can know; of several
    that end at the same character, the longest. After a match nothing more is returned.

    Args:
        stops: The stop strings, none of them empty.
        keep: Return the matched stop string as part of the text instead of cutting it off.

    Raises:
        ValueError: A stop string is empty.
    """

    def __init__(self, stops: Sequence[str], *, keep: bool = False) -> None:
        if any(not stop for stop in stops):
            raise ValueError("a stop string must not be empty")
        self._stops = tuple(dict.fromkeys(stops))
        self._keep = keep
        self._held = ""
        self.matched: str | None = None

    def feed(self, piece: str, *, armed: bool = True) -> str:
        """Take the next piece; return what is now known not to belong to a stop string.

        Args:
            piece: New text.
            armed: False: a stop string that is completed in this piece does not count.
        """
        out = []
        for char in piece:
            if self.matched is not None:
                break
            out.append(self._feed_char(char, armed))
        return "".join(out)

    def flush(self) -> str:
        """End of the answer: return what was held back."""
        held, self._held = self._held, ""
        return held

    def _feed_char(self, char: str, armed: bool) -> str:
        # One character at a time: a match is seen at the character that completes it, so the
        # result cannot depend on how the text was cut.
        self._held += char
        ending = [stop for stop in self._stops if self._held.endswith(stop)]
        if ending and armed:
            self.matched = max(ending, key=len)
            end = len(self._held) if self._keep else len(self._held) - len(self.matched)
            out, self._held = self._held[:end], ""
            return out
        cut = len(self._held) - self._open_len()
        out, self._held = self._held[:cut], self._held[cut:]
        return out

    def _open_len(self) -> int:
        """Length of the longest suffix of the held text that begins a stop string."""
        longest = min(len(self._held), max(map(len, self._stops), default=1) - 1)
        for size in range(longest, 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stops):
                return size
        return 0
