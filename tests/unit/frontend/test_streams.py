"""Streams of answers: merging, endings, leaving."""

import asyncio

import pytest

from headwater.errors import EngineDead
from headwater.frontend.requests import Answer
from headwater.frontend.streams import AnswerStream, Streams
from headwater.messages.text import TextDelta, TokenLogprob, TokenLogprobs
from headwater.messages.tokens import Finish

DONE = Finish("length", length=3)


def delta(uid: int, text: str, *ids: int, finish: Finish | None = None) -> TextDelta:
    """A delta with a log-probability for each id."""
    records = [TokenLogprobs(TokenLogprob(-1.0, i)) for i in ids]
    return TextDelta(uid, text, list(ids), finish=finish, output_logprobs=records)


def opened(count: int) -> tuple[Streams, AnswerStream, list[int]]:
    """A submission of `count` answers with uids 0, 1 ...; the last is what gets aborted."""
    aborted: list[int] = []
    stream = AnswerStream([[1]], [f"r{i}" for i in range(count)], aborted.extend)
    streams = Streams()
    for i in range(count):
        streams.open(i, stream, i)
    return streams, stream, aborted


async def test_a_slow_reader_gets_merged_deltas() -> None:
    """Nothing is lost or doubled, and what waits is one delta for each answer."""
    streams, stream, _ = opened(2)
    streams.deliver([delta(0, "a", 1), delta(1, "x", 9)])
    streams.deliver([delta(0, "b", 2), delta(0, "c", 3, finish=DONE)])
    ended = streams.deliver([delta(1, "", finish=DONE)])
    assert ended == [1]
    answers = [Answer(), Answer()]
    count = 0
    async for index, piece in stream:
        answers[index].add(piece)
        count += 1
    assert count == 2
    assert [a.text for a in answers] == ["abc", "x"]
    assert answers[0].ids == [1, 2, 3]
    assert len(answers[0].output_logprobs or []) == 3
    assert len(streams) == 0


async def test_a_reader_that_waits_is_woken() -> None:
    """By text, by the end, and by the engine's death."""
    streams, stream, _ = opened(1)
    reading = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    streams.deliver([delta(0, "a", 1)])
    assert (await reading)[1].text == "a"
    reading = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    streams.fail_all(EngineDead("gone"))
    with pytest.raises(EngineDead):
        await reading


async def test_text_that_came_before_the_death_is_still_read() -> None:
    """Then the error."""
    streams, stream, _ = opened(1)
    streams.deliver([delta(0, "a", 1)])
    streams.fail_all(EngineDead("gone"))
    assert (await anext(stream))[1].text == "a"
    with pytest.raises(EngineDead):
        await anext(stream)


async def test_leaving_aborts_what_is_unfinished_only() -> None:
    """And only once."""
    streams, stream, aborted = opened(3)
    streams.deliver([delta(1, "x", 1, finish=DONE)])
    await stream.aclose()
    await stream.aclose()
    assert sorted(aborted) == [0, 2]
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_deltas_of_unknown_answers_are_ignored() -> None:
    """A late message about an answer that has ended."""
    streams, _, _ = opened(1)
    assert streams.deliver([delta(99, "x", 1)]) == []


async def test_waiting_for_the_last_answer() -> None:
    """`wait_idle` returns when none is in flight."""
    streams, _, _ = opened(1)
    waiting = asyncio.create_task(streams.wait_idle())
    await asyncio.sleep(0)
    assert not waiting.done()
    streams.deliver([delta(0, "", finish=DONE)])
    await asyncio.wait_for(waiting, 5)
