"""The stop matcher against a definition that sees the whole text at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.text import StopMatcher
from tests.kit.cut import cut


def reference(text: str, stops: list[str]) -> str:
    """The text before the stop that completes first; the longest of those that end there."""
    for end in range(1, len(text) + 1):
        ending = [s for s in stops if text[:end].endswith(s)]
        if ending:
            return text[: end - max(map(len, ending))]
    return text


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_any_cut_gives_the_reference(text: str, stops: list[str]) -> None:
    """Streamed text equals the cut of the whole text, however it arrives."""
    assert cut(text, lambda: StopMatcher(stops), num_random=5) == reference(text, stops)


def test_nothing_of_a_stop_string_leaks() -> None:
    """B005: pieces of a stop string never leave before the match completes."""
    matcher = StopMatcher(["<<end of note>>"])
    pieces = [matcher.feed(p) for p in ("Hi", " <", "<end", " of", " note", ">>", "more")]
    assert pieces == ["Hi", " ", "", "", "", "", ""]
    assert matcher.matched == "<<end of note>>"
    assert matcher.flush() == ""


def test_near_miss_is_released_at_once() -> None:
    """B007: held text leaves as soon as the prefix fails."""
    matcher = StopMatcher(["\nResult: "])
    assert matcher.feed("a\nRes") == "a"
    assert matcher.feed("umé") == "\nResumé"


def test_text_that_cannot_be_a_prefix_is_not_held() -> None:
    """B009: no run of empty pieces while a stop is set."""
    matcher = StopMatcher(["QQQQQQ"])
    assert [matcher.feed(p) for p in ("One", " two", " three")] == ["One", " two", " three"]


def test_keep_returns_the_stop() -> None:
    """no_stop_trim keeps the matched string, and nothing after it."""
    matcher = StopMatcher(["END"], keep=True)
    assert matcher.feed("xENDy") == "xEND"


def test_empty_stop_is_refused() -> None:
    """An empty stop string would match everywhere."""
    with pytest.raises(ValueError, match="empty"):
        StopMatcher([""])
