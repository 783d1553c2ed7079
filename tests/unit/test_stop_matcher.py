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


@given(
    st.lists(st.tuples(st.text("ab", max_size=4), st.booleans()), max_size=6),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_a_stop_that_ends_in_an_unarmed_piece_does_not_count(
    pieces: list[tuple[str, bool]], stops: list[str]
) -> None:
    """Only one that is completed by a character of an armed piece does."""
    text = "".join(piece for piece, _ in pieces)
    armed = [is_armed for piece, is_armed in pieces for _ in piece]
    expected = text
    for end in range(1, len(text) + 1):
        ending = [s for s in stops if text[:end].endswith(s)]
        if ending and armed[end - 1]:
            expected = text[: end - max(map(len, ending))]
            break
    matcher = StopMatcher(stops)
    sent = "".join(matcher.feed(piece, armed=is_armed) for piece, is_armed in pieces)
    got = sent + matcher.flush()
    if matcher.matched is None:
        assert got == expected
    else:
        # What had left before a later stop began is not taken back.
        assert got == expected or expected.startswith(got)


def test_many_long_stops_do_not_slow_the_stream() -> None:
    """32 stop strings of 4,096 characters that nearly match all the time."""
    stops = ["a" * (4064 + k) + "b" for k in range(32)]
    matcher = StopMatcher(stops)
    text = "a" * 6000
    assert len("".join(matcher.feed(text[i : i + 3]) for i in range(0, 6000, 3))) > 1900
