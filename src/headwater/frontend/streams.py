"""Answers in flight: from a delta's uid to the consumer that waits for it.

Deltas that a slow consumer has not taken are merged, so what waits is never larger than the answer.
It knows asyncio and deltas, no sockets.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from headwater.errors import HeadwaterError
from headwater.messages.text import TextDelta

__all__ = ["AnswerStream", "Streams", "merge_deltas"]


def merge_deltas(first: TextDelta, second: TextDelta) -> TextDelta:
    """One delta that says what two neighbours say."""
    logprobs = first.output_logprobs
    if second.output_logprobs is not None:
        logprobs = (logprobs or []) + second.output_logprobs
    return msgspec.structs.replace(
        second,
        text=first.text + second.text,
        ids=first.ids + second.ids,
        input_logprobs=first.input_logprobs or second.input_logprobs,
        output_logprobs=logprobs,
    )


class AnswerStream:
    """The answers to one submission, as `(index, delta)` pairs in the order they come.

    Answer k of request i has index i * n + k. Iteration ends when every answer has had its
    final delta.

    Args:
        prompts: Token ids of each request.
        rids: Name of each answer.
        abort: Called with the indexes that are unfinished when the consumer leaves.

    Attributes:
        prompts: Token ids of each request.
        rids: Name of each answer.
    """

    def __init__(
        self,
        prompts: Sequence[list[int]],
        rids: Sequence[str],
        abort: Callable[[Iterable[int]], None],
    ) -> None:
        self.prompts = prompts
        self.rids = rids
        self._abort = abort
        self._waiting: dict[int, TextDelta] = {}
        self._unfinished = set(range(len(rids)))
        self._error: HeadwaterError | None = None
        self._news = asyncio.Event()

    def put(self, index: int, delta: TextDelta) -> None:
        """A delta has come."""
        if index in self._waiting:
            delta = merge_deltas(self._waiting[index], delta)
        self._waiting[index] = delta
        if delta.finish is not None:
            self._unfinished.discard(index)
        self._news.set()

    def fail(self, error: HeadwaterError) -> None:
        """Nothing more will come."""
        self._error = error
        self._news.set()

    def __aiter__(self) -> "AnswerStream":
        return self

    async def __anext__(self) -> tuple[int, TextDelta]:
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if not self._unfinished:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        index = next(iter(self._waiting))
        return index, self._waiting.pop(index)

    async def aclose(self) -> None:
        """The consumer leaves: unfinished answers are aborted. Safe to call at any time."""
        if self._unfinished and self._error is None:
            self._abort(self._unfinished)
        self._unfinished = set()
        self._waiting.clear()


class Streams:
    """All answers in flight, by uid."""

    def __init__(self) -> None:
        self._by_uid: dict[int, tuple[AnswerStream, int]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._by_uid)

    def open(self, uid: int, stream: AnswerStream, index: int) -> None:
        """Deltas of this uid go to that answer of the stream."""
        self._by_uid[uid] = (stream, index)
        self._idle.clear()

    def deliver(self, deltas: Iterable[TextDelta]) -> list[int]:
        """Hand the deltas on; return the uids that have ended."""
        ended = []
        for delta in deltas:
            target = self._by_uid.get(delta.uid)
            if target is None:
                continue
            target[0].put(target[1], delta)
            if delta.finish is not None:
                ended.append(delta.uid)
                del self._by_uid[delta.uid]
        self._note_idle()
        return ended

    def fail_all(self, error: HeadwaterError) -> None:
        """The engine has ended: every consumer learns it."""
        for stream, _ in self._by_uid.values():
            stream.fail(error)
        self._by_uid.clear()
        self._note_idle()

    async def wait_idle(self) -> None:
        """Wait until no answer is in flight."""
        await self._idle.wait()

    def _note_idle(self) -> None:
        if not self._by_uid:
            self._idle.set()
