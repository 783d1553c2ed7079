"""Stop patterns: what they match does not depend on the cut, and their work is bounded."""

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidRequest
from headwater.text.stop_regex import MAX_HELD_LEN, RegexStopMatcher, check_stop_regex
from tests.kit.cut import cut

PATTERNS = ["a+b", "b.b", "[ab]{3}c", "ab|ba", "c$", r"\d+\.", "(?<=a)c", "a.*c"]


def reference(text: str, patterns: list[str]) -> str:
    """The text before the match that completes first; of those, the one that begins first."""
    for end in range(1, len(text) + 1):
        found = []
        for pattern in patterns:
            for start in range(end):
                match = regex.compile(pattern).match(text, start, end)
                if match and match.end() == end > start:
                    found.append(start)
                    break
        if found:
            return text[: min(found)]
    return text


@settings(deadline=None, max_examples=200)
@given(st.text("abc1.", max_size=12), st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3))
def test_any_cut_gives_the_reference(text: str, patterns: list[str]) -> None:
    """The least end at which any pattern matches, however the text arrives."""
    assert cut(text, lambda: RegexStopMatcher(patterns), num_random=3) == reference(text, patterns)


def test_keep_shows_the_match() -> None:
    """`no_stop_trim`."""
    matcher = RegexStopMatcher([r"\d+;"], keep=True)
    assert matcher.feed("ab12;cd") == "ab12;"
    assert matcher.matched == "12;"


def test_strings_are_matched_beside_patterns() -> None:
    """Literally, whatever characters they hold."""
    matcher = RegexStopMatcher(["x+y"], stops=["a.c"])
    assert matcher.feed("abc a.c") == "abc "
    assert matcher.matched == "a.c"


def test_held_text_is_bounded() -> None:
    """A pattern that may always go on does not hold the stream for ever."""
    matcher = RegexStopMatcher(["a.*never"])
    sent = "".join(matcher.feed("a") for _ in range(MAX_HELD_LEN + 100))
    assert len(sent) == 100
    assert len(sent + matcher.flush()) == MAX_HELD_LEN + 100


@pytest.mark.parametrize("pattern", ["(", "a*", "", "[", "(?P<a>", "a{99999999999}"])
def test_unusable_patterns_are_refused(pattern: str) -> None:
    """Those that do not compile or match empty text."""
    with pytest.raises(InvalidRequest) as caught:
        check_stop_regex(pattern)
    assert caught.value.param == "sampling_params.stop_regex"


def test_patterns_that_are_slow_at_every_character_are_given_up() -> None:
    """Each search is within its bound, but other answers wait for all of them."""
    matcher = RegexStopMatcher(["(?:abcdefghij){e<=9}zz"] * 4)
    with pytest.raises(InvalidRequest) as caught:
        matcher.feed("a" * 300)
    assert caught.value.param == "stop_regex"
