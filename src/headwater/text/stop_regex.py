"""Stop patterns over streamed text; this module knows text, never token ids.

The pattern that is complete first ends the answer: the least end position at which any pattern
matches. That is seen at the character that completes it, so the cut of the text cannot matter. Text
is held back while a pattern may still be completed from it, but never more than `MAX_HELD_LEN`
characters: a match that begins further back is given up.
"""

import time
from collections.abc import Sequence

import regex

from headwater.errors import InvalidRequest

__all__ = ["MAX_HELD_LEN", "RegexStopMatcher", "check_stop_regex"]

MAX_HELD_LEN = 2048
_CONTEXT_LEN = 64  # characters before the held text that a look-behind may see
_TIMEOUT_S = 0.25
# Of a whole answer: other answers wait while a pattern is searched for.
_BUDGET_S = 0.5
_BUDGET_PER_CHAR_S = 0.001


def check_stop_regex(pattern: str, *, param: str = "sampling_params.stop_regex") -> None:
    """Refuse a pattern that cannot be used.

    Raises:
        InvalidRequest: The pattern does not compile, or matches empty text.
    """
    try:
        compiled = regex.compile(pattern)
        if compiled.search("", timeout=_TIMEOUT_S):
            raise InvalidRequest(f"stop_regex {pattern!r} matches the empty text", param=param)
    except (regex.error, OverflowError, RecursionError, TimeoutError) as err:
        raise InvalidRequest(f"stop_regex {pattern!r} is not valid: {err}", param=param) from None


def _too_slow() -> InvalidRequest:
    return InvalidRequest(
        "searching the answer for stop_regex takes too long; simpler patterns are needed",
        param="stop_regex",
    )


class RegexStopMatcher:
    """Finds the first of several stop patterns (and strings), whatever the cut of the text.

    Args:
        patterns: Patterns that `check_stop_regex` accepts.
        stops: Stop strings, matched beside the patterns.
        keep: Return the matched text instead of cutting it off.
    """

    def __init__(
        self, patterns: Sequence[str], *, stops: Sequence[str] = (), keep: bool = False
    ) -> None:
        sources = [*patterns, *map(regex.escape, stops)]
        self._patterns = [regex.compile(source) for source in sources]
        self._keep = keep
        self._context = ""
        self._held = ""
        self._left_s = _BUDGET_S
        self.matched: str | None = None

    def feed(self, piece: str, *, armed: bool = True) -> str:
        """Take the next piece; return what is now known not to belong to a stop.

        Args:
            piece: New text.
            armed: False: a pattern that is completed in this piece does not end the answer.

        Raises:
            InvalidRequest: A pattern took too long, or all of them together.
        """
        out = []
        for char in piece:
            if self.matched is not None:
                break
            self._held += char
            started_at = time.perf_counter()
            try:
                out.append(self._step(armed))
            except TimeoutError:
                raise _too_slow() from None
            self._left_s += _BUDGET_PER_CHAR_S - (time.perf_counter() - started_at)
            if self._left_s < 0:
                raise _too_slow()
        return "".join(out)

    def flush(self) -> str:
        """End of the answer: return what was held back."""
        held, self._held = self._held, ""
        return held

    def _step(self, armed: bool) -> str:
        window, pos = self._context + self._held, len(self._context)
        open_from = len(window)
        found: tuple[int, int] | None = None
        for pattern in self._patterns:
            match = pattern.search(window, pos, partial=True, timeout=_TIMEOUT_S)
            if match is None:
                continue
            if match.partial or not armed:
                open_from = min(open_from, match.start())
            elif match.end() > match.start() and (found is None or match.start() < found[0]):
                found = match.span()
        if found is not None:
            self.matched = window[found[0] : found[1]]
            end = found[1] if self._keep else found[0]
            self._held = ""
            return window[pos:end]
        open_from = max(open_from, len(window) - MAX_HELD_LEN)
        out, self._held = window[pos:open_from], window[open_from:]
        self._context = window[max(0, open_from - _CONTEXT_LEN) : open_from]
        return out
