"""The detokenizer's state: deltas and stops for token outputs."""

from typing import Any

import pytest

from headwater.detokenizer.state import Detokenizer
from headwater.messages.text import TextDelta
from headwater.messages.tokens import (
    Finish,
    InputLogprobs,
    Opening,
    PositionLogprobs,
    TokenBatch,
    TokenOutput,
)
from headwater.text import Tokenizer
from headwater.text.stop_regex import RegexStopMatcher
from tests.kit.scripted import ScriptTokenizer, byte_level_tokenizer

RAW = byte_level_tokenizer(["ab", "cd"])
TOKENIZER, IDS = Tokenizer(RAW), ScriptTokenizer(RAW)


def opening(**fields: Any) -> Opening:
    """A plain opening."""
    values: dict[str, Any] = {
        "context_ids": [97],
        "skip_special_tokens": True,
        "spaces_between_special_tokens": True,
        "stop": [],
        "stop_regex": [],
        "no_stop_trim": False,
        "min_new_tokens": 0,
        "logprob_text": False,
        "stream": True,
        "prompt_tokens": 5,
    }
    return Opening(**{**values, **fields})


def run(
    detokenizer: Detokenizer, *outputs: TokenOutput
) -> tuple[list[TextDelta], list[tuple[int, int]]]:
    """Feed outputs one batch each; all deltas and stops."""
    deltas, stops = [], []
    for output in outputs:
        new_deltas, new_stops = detokenizer.feed(TokenBatch([output]))
        deltas += new_deltas
        stops += [(stop.uid, stop.num_ids) for stop in new_stops]
    return deltas, stops


def pieces(*names: str | bytes) -> list[int]:
    """Ids of tokens."""
    return [IDS.id(name) for name in names]


def test_a_stream_of_text() -> None:
    """Each output gives its text and ids; the last carries the finish, the stop token trimmed."""
    end = Finish("stop", matched=IDS.id("<|eos|>"))
    deltas, stops = run(
        Detokenizer(TOKENIZER),
        TokenOutput(1, pieces("ab"), opening=opening()),
        TokenOutput(1, pieces("cd", "x")),
        TokenOutput(1, pieces("<|eos|>"), finish=end, trim_ids=1),
    )
    assert [d.text for d in deltas] == ["ab", "cdx", ""]
    assert [d.completion_tokens for d in deltas] == [1, 3, 4]
    assert deltas[-1].finish == end
    assert deltas[-1].trimmed_ids == 1
    assert not stops


def test_ids_wait_for_their_text() -> None:
    """B011: the tokens of a character that is not complete come with it."""
    deltas, _ = run(
        Detokenizer(TOKENIZER),
        TokenOutput(1, pieces("ab", b"\xc3"), opening=opening()),
        TokenOutput(1, pieces(b"\xa9")),
        TokenOutput(1, [], finish=Finish("length", length=3)),
    )
    assert [(d.text, d.ids) for d in deltas[:2]] == [
        ("ab", pieces("ab")),
        ("é", pieces(b"\xc3", b"\xa9")),
    ]


def test_a_stop_string_ends_the_answer_and_tells_the_worker() -> None:
    """The last delta leaves at once; what the worker made since is dropped until it confirms."""
    detokenizer = Detokenizer(TOKENIZER)
    deltas, stops = run(
        detokenizer,
        TokenOutput(1, pieces("ab"), opening=opening(stop=["cdx"])),
        TokenOutput(1, pieces("cd")),
        TokenOutput(1, pieces("x", "y")),
        TokenOutput(1, pieces("z")),
        TokenOutput(1, [], finish=Finish("stop")),
    )
    assert [d.text for d in deltas] == ["ab", ""]
    assert deltas[-1].finish == Finish("stop", matched="cdx")
    assert deltas[-1].ids == pieces("cd", "x")
    assert deltas[-1].completion_tokens == 3
    assert deltas[-1].trimmed_ids == 2
    assert stops == [(1, 3)]
    assert detokenizer.num_answers == 0


def test_a_stop_in_the_workers_last_output_needs_no_message() -> None:
    """The worker has ended already."""
    deltas, stops = run(
        Detokenizer(TOKENIZER),
        TokenOutput(
            1, pieces("ab", "cd"), opening=opening(stop=["d"]), finish=Finish("length", length=2)
        ),
    )
    assert deltas[-1].finish == Finish("stop", matched="d")
    assert deltas[-1].text == "abc"
    assert not stops


def test_held_text_leaves_at_the_end() -> None:
    """What might have become a stop string, and half a character as U+FFFD."""
    deltas, _ = run(
        Detokenizer(TOKENIZER),
        TokenOutput(1, pieces("ab", "x"), opening=opening(stop=["xyz"])),
        TokenOutput(1, pieces(b"\xc3"), finish=Finish("length", length=3)),
    )
    assert "".join(d.text for d in deltas) == "abx\ufffd"
    assert [i for d in deltas for i in d.ids] == pieces("ab", "x", b"\xc3")


def test_without_stream_there_is_one_delta() -> None:
    """Outputs are kept until the finish."""
    deltas, _ = run(
        Detokenizer(TOKENIZER),
        TokenOutput(1, pieces("ab"), opening=opening(stream=False, stop=["zz"])),
        TokenOutput(1, pieces("cd"), finish=Finish("length", length=2)),
    )
    assert [(d.text, d.ids) for d in deltas] == [("abcd", pieces("ab", "cd"))]


def test_logprobs_come_with_their_tokens() -> None:
    """One record for each id of the delta, with text and bytes when asked for."""
    record = PositionLogprobs((-0.5, IDS.id(b"\xc3")), [(-0.5, IDS.id("ab"))])
    second = PositionLogprobs((-0.25, IDS.id(b"\xa9")))
    deltas, _ = run(
        Detokenizer(TOKENIZER),
        TokenOutput(
            1,
            pieces(b"\xc3"),
            opening=opening(logprob_text=True),
            output_logprobs=[record],
            input_logprobs=InputLogprobs([PositionLogprobs((None, 97))]),
        ),
        TokenOutput(1, pieces(b"\xa9"), output_logprobs=[second]),
    )
    (delta,) = deltas
    assert delta.output_logprobs is not None
    assert [r.token.raw for r in delta.output_logprobs] == [b"\xc3", b"\xa9"]
    assert delta.output_logprobs[0].top is not None
    assert delta.output_logprobs[0].top[0].text == "ab"
    assert delta.input_logprobs is not None
    assert delta.input_logprobs[0].token.text == "a"


def test_min_new_tokens_comes_before_stops() -> None:
    """A stop string that completes too early does not count; a later one does."""
    deltas, _ = run(
        Detokenizer(TOKENIZER),
        TokenOutput(1, pieces("ab", "ab"), opening=opening(stop=["ab"], min_new_tokens=3)),
        TokenOutput(1, pieces("ab")),
    )
    assert "".join(d.text for d in deltas) == "abab"
    assert deltas[-1].completion_tokens == 3


def test_an_answer_that_ends_before_it_began() -> None:
    """Aborted while waiting: one final delta."""
    deltas, _ = run(Detokenizer(TOKENIZER), TokenOutput(1, [], finish=Finish("abort")))
    assert [d.finish for d in deltas] == [Finish("abort")]


def test_one_answer_that_fails_does_not_take_others_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends with an error, and the worker is told to stop it."""

    def fail(self: RegexStopMatcher, piece: str, *, armed: bool = True) -> str:
        raise TimeoutError

    monkeypatch.setattr(RegexStopMatcher, "feed", fail)
    detokenizer = Detokenizer(TOKENIZER)
    deltas, stops = detokenizer.feed(
        TokenBatch(
            [
                TokenOutput(1, pieces("ab"), opening=opening(stop_regex=["q"])),
                TokenOutput(2, pieces("ab"), opening=opening()),
            ]
        )
    )
    finishes = {d.uid: d.finish for d in deltas}
    assert finishes[2] is None
    assert finishes[1] is not None
    assert finishes[1].type == "error"
    assert [stop.uid for stop in stops] == [1]


def test_a_changed_version_replaces_what_has_not_left() -> None:
    """Jump-forward: the message has the whole answer; what left before does not leave again."""
    deltas, stops = run(
        Detokenizer(TOKENIZER),
        TokenOutput(1, pieces("ab", b"\xc3"), opening=opening(stop=["xyz"])),
        TokenOutput(1, pieces("ab", "cd", "x"), version=1),
        TokenOutput(1, pieces("ab", "cd", "x", "a"), version=2),
        TokenOutput(1, pieces("ab"), version=2, finish=Finish("length", length=5)),
    )
    assert [d.text for d in deltas] == ["ab", "cd", "xa", "ab"]
    assert [d.ids for d in deltas] == [pieces("ab"), pieces("cd"), pieces("x", "a"), pieces("ab")]
    assert deltas[-1].completion_tokens == 5
    assert not stops


def test_a_changed_version_replaces_log_probabilities_too() -> None:
    """They stay one for each id."""
    ids = pieces("ab", "cd", "x")

    def records(*values: float) -> list[PositionLogprobs]:
        return [PositionLogprobs((v, i)) for v, i in zip(values, ids, strict=False)]

    deltas, _ = run(
        Detokenizer(TOKENIZER),
        TokenOutput(1, ids[:1], opening=opening(), output_logprobs=records(-1)),
        TokenOutput(1, ids, version=1, output_logprobs=records(-1, -2, -3)),
    )
    kept = [[t.token.logprob for t in d.output_logprobs or []] for d in deltas]
    assert kept == [[-1], [-2, -3]]


@pytest.mark.parametrize("new", [("x", "cd"), (), ("a",)])
def test_what_has_left_cannot_be_replaced(new: tuple[str, ...]) -> None:
    """An answer that would contradict its own stream ends with an error, alone."""
    detokenizer = Detokenizer(TOKENIZER)
    deltas, stops = run(
        detokenizer,
        TokenOutput(2, pieces("cd"), opening=opening()),
        TokenOutput(1, pieces("ab"), opening=opening()),
        TokenOutput(1, pieces(*new), version=1),
        TokenOutput(2, pieces("cd")),
    )
    assert [(d.uid, d.text) for d in deltas] == [(2, "cd"), (1, "ab"), (1, ""), (2, "cd")]
    assert deltas[2].finish is not None
    assert deltas[2].finish.code == "internal_error"
    assert stops == [(1, 1)]
