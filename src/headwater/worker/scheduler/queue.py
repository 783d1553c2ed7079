"""Who waits, and who starts first; it knows prefix lengths as numbers, not the cache.

    front    retracted, or overtaken in `max_wait_steps` steps: first, in order of arrival
    queue    all others: by policy

Nothing else starts while the first of the front does not fit, which bounds every wait.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from headwater.worker.scheduler.options import SchedulerOptions
from headwater.worker.scheduler.request import Request

__all__ = ["LPM_WINDOW", "WaitingQueue"]

# How many of the longest waiting requests `lpm` compares, so that a long queue costs no more.
LPM_WINDOW = 128


class WaitingQueue:
    """The requests that wait to start.

    Args:
        options: The scheduler's settings.
        prefix_len: Length of the cached prefix of a request, for `lpm`.
    """

    def __init__(self, options: SchedulerOptions, prefix_len: Callable[[Request], int]) -> None:
        self._is_lpm = options.schedule_policy == "lpm"
        self._max_overtaken = options.max_wait_steps
        self._prefix_len = prefix_len
        self._front: dict[int, Request] = {}
        self._queue: dict[int, Request] = {}

    def __len__(self) -> int:
        return len(self._front) + len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        yield from self._front.values()
        yield from self._queue.values()

    def add(self, request: Request) -> None:
        """A new request waits behind all others."""
        self._queue[request.uid] = request

    def put_back(self, request: Request) -> None:
        """A retracted request waits before all that have not started yet."""
        self._front[request.uid] = request

    def remove(self, uid: int) -> Request | None:
        """Take a request out, if it waits."""
        return self._queue.pop(uid, None) or self._front.pop(uid, None)

    def in_order(self) -> list[Request]:
        """The requests that may start now, in the order in which they should."""
        front = sorted(self._front.values(), key=lambda request: request.arrival)
        if not self._is_lpm:
            return front + list(self._queue.values())
        window = list(islice(self._queue.values(), LPM_WINDOW))
        # The sort is stable: of equal prefixes the older request goes first.
        window.sort(key=self._prefix_len, reverse=True)
        return front + window

    def note_started(self, started: list[Request]) -> None:
        """Count a step in which these requests started, for all older ones that still wait."""
        youngest = max((request.arrival for request in started), default=-1)
        due = []
        for request in self._queue.values():
            if request.arrival > youngest:
                break  # in order of arrival: nobody further back was overtaken
            request.num_overtaken += 1
            if request.num_overtaken >= self._max_overtaken:
                due.append(request)
        for request in due:
            self._front[request.uid] = self._queue.pop(request.uid)
