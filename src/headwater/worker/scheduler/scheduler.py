"""The scheduler: which requests run in the next step, and what becomes of the tokens they gave.

It knows token ids, page numbers and counts; tensors, text and sockets are unknown to it. A step:

    plan()      room for every running request (retract), all decodes, prompt chunks (budget),
                new requests (queue)
    commit()    records and tokens of each row, filled pages to the cache, ends and outputs

`add`, `abort` and `stop` may be called at any time, also between a plan and its commit. They and
`commit` return the outputs to send; every accepted or refused request gets exactly one output with
`finish`.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from headwater.errors import Overloaded
from headwater.messages.requests import Generate
from headwater.messages.tokens import Finish, TokenOutput
from headwater.worker.scheduler.budget import make_row, prompt_budget
from headwater.worker.scheduler.options import SchedulerOptions
from headwater.worker.scheduler.outputs import confirm_stop, finish_reason, make_output, refuse
from headwater.worker.scheduler.page_tables import PageTables
from headwater.worker.scheduler.plan import Row, RowResult, StepPlan, StepResult
from headwater.worker.scheduler.queue import WaitingQueue
from headwater.worker.scheduler.request import Request
from headwater.worker.scheduler.retract import make_room

__all__ = ["Scheduler", "SchedulerOptions"]


@dataclass(slots=True)
class _Totals:
    """Counts since the start; `Scheduler.state` tells what they mean."""

    num_steps: int = 0
    num_requests: int = 0
    num_refused: int = 0
    num_finished: int = 0
    num_aborted: int = 0
    num_errors: int = 0
    num_retractions: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_generated_tokens: int = 0


class Scheduler:
    """Decides each step; owns all requests and pages of a worker.

    Args:
        options: Its settings.
    """

    def __init__(self, options: SchedulerOptions) -> None:
        self._options = options
        self._tables = PageTables(options)
        self._queue = WaitingQueue(options, lambda request: self._tables.find(request).depth)
        self._running: dict[int, Request] = {}
        self._totals = _Totals()

    @property
    def has_work(self) -> bool:
        """True while a request runs or waits."""
        return bool(self._running) or len(self._queue) > 0

    def add(self, generate: Generate) -> list[TokenOutput]:
        """Accept a request; it starts in one of the next plans.

        Returns:
            Nothing, or the request's only output: when it is refused (finish `error`), or when it
            asks for nothing that needs a step.
        """
        self._totals.num_requests += 1
        error = self._options.refusal(generate) or self._overload()
        if error is not None:
            self._totals.num_refused += 1
            return [refuse(generate, error)]
        root = self._tables.cache.root
        request = Request(generate, self._totals.num_requests, self._options, root)
        if request.is_answered:
            self._totals.num_finished += 1
            return [make_output(request, Finish("length", length=0))]
        self._queue.add(request)
        return []

    def abort(self, uids: Iterable[int], message: str) -> list[TokenOutput]:
        """End requests at once, wherever they are; unknown ones are ignored.

        Returns:
            For each its last output, with what was not sent yet and finish `abort`.
        """
        outputs = []
        for uid in uids:
            request = self._take_out(uid)
            if request is not None:
                self._totals.num_aborted += 1
                outputs.append(make_output(request, Finish("abort", message=message)))
        return outputs

    def stop(self, uid: int, num_ids: int) -> list[TokenOutput]:
        """End an answer whose text ended with its `num_ids`-th token; unknown ones are ignored.

        Returns:
            Its last output, without ids and with a plain finish `stop`.
        """
        request = self._take_out(uid)
        if request is None:
            return []
        self._totals.num_finished += 1
        self._totals.num_generated_tokens -= request.num_output - num_ids
        return [confirm_stop(request)]

    def plan(self) -> StepPlan | None:
        """Choose the rows of the next step, or None when there is nothing to do.

        Every plan is followed by its `commit` before the next one.
        """
        self._totals.num_retractions += make_room(self._running, self._tables, self._queue)
        rows = []
        prefills = []
        for request in self._running.values():
            if request.num_uncomputed == 1:
                rows.append(make_row(request, 1))
            else:
                prefills.append(request)
        budget = prompt_budget(self._options.chunked_prefill_size, len(rows))
        for request in prefills:
            budget -= _add_chunk(rows, request, budget)
        self._start_requests(rows, prefills, budget)
        assert rows or not self.has_work, "requests wait and none can start"
        return StepPlan(rows) if rows else None

    def commit(self, plan: StepPlan, result: StepResult) -> list[TokenOutput]:
        """Take the results of a plan; rows whose request has gone since are ignored."""
        self._totals.num_steps += 1
        outputs = []
        for row, row_result in zip(plan.rows, result.rows, strict=True):
            request = self._running.get(row.uid)
            if request is None:
                continue
            finish = self._take_result(request, row, row_result)
            if finish is not None:
                self._take_out(request.uid)
            if finish is not None or request.has_due_output:
                outputs.append(make_output(request, finish))
        return outputs

    def state(self) -> dict[str, int]:
        """Counts, now and since the start.

        `num_used_pages` are held by running requests, shared ones included; `num_cached_pages`
        are in the radix cache, used or not. `num_generated_tokens` leaves out tokens that came
        after a stop in the text. `num_prompt_tokens` and `num_cached_tokens` count a request once,
        at its first start.
        """
        return {
            "num_running": len(self._running),
            "num_waiting": len(self._queue),
            "num_pages": self._options.num_pages,
            "num_free_pages": self._tables.num_free,
            "num_used_pages": self._tables.num_used,
            "num_cached_pages": self._tables.cache.num_pages,
            **asdict(self._totals),
        }

    def flush_cache(self) -> bool:
        """Empty the radix cache; False, and nothing, while a request runs or waits."""
        if self.has_work:
            return False
        self._tables.cache.flush()
        return True

    def check_integrity(self) -> None:
        """Check pages, locks and slots; can be called at any time.

        Raises:
            AssertionError: Something has two owners, or none.
        """
        assert len(self._running) <= self._options.max_running_requests, "too many requests run"
        for request in self._queue:
            assert request.uid not in self._running, "a running request waits"
            assert not request.pages, "a waiting request has pages"
            assert request.num_computed == 0, "a waiting request has computed tokens"
            assert request.node is self._tables.cache.root, "a waiting request has a lock"
        self._tables.check_integrity(self._running.values())

    def _overload(self) -> Overloaded | None:
        most = self._options.max_queued_requests
        if most is None:
            return None
        if len(self._running) + len(self._queue) < self._options.max_running_requests + most:
            return None
        return Overloaded(f"{len(self._queue)} requests wait already; try again later")

    def _start_requests(self, rows: list[Row], prefills: list[Request], budget: int) -> None:
        """Start waiting requests while there are slots, budget and pages.

        A request whose next page is being computed by a prompt of this step is left to wait and
        share. What budget is left here, no prompt before needed: all of them end in this step, so
        that wait is one step long.
        """
        num_slots = self._options.max_running_requests - len(self._running)
        if budget <= 0 or num_slots <= 0 or not len(self._queue):
            return
        started: list[Request] = []
        coming = {self._tables.page_to_share(request) for request in prefills}
        for request in self._queue.in_order():
            if budget <= 0 or len(started) == num_slots:
                break
            page = self._tables.page_to_find(request)
            if page is not None and page in coming:
                continue
            if not self._tables.start(request, len(self._running)):
                break
            self._queue.remove(request.uid)
            self._running[request.uid] = request
            self._count_first_start(request)
            started.append(request)
            coming.add(self._tables.page_to_share(request))
            budget -= _add_chunk(rows, request, budget)
        self._queue.note_started(started)

    def _count_first_start(self, request: Request) -> None:
        if request.cached_tokens is None:
            request.cached_tokens = request.num_computed
            self._totals.num_cached_tokens += request.num_computed
            self._totals.num_prompt_tokens += request.prompt_len

    def _take_result(self, request: Request, row: Row, result: RowResult) -> Finish | None:
        """Add what a row gave to its request; return why the request ends, if it does."""
        if result.error is not None:  # what the row computed is not to be trusted: not shared
            self._totals.num_errors += 1
            return Finish("error", message=result.error, code="internal_error")
        request.num_computed = row.end
        if row.input_from is not None:
            assert result.input_logprobs is not None, "a row without its input logprobs"
            assert request.input_logprobs is not None, "input logprobs nobody asked for"
            request.input_logprobs += result.input_logprobs
            request.next_input += len(result.input_logprobs)
        if row.samples:
            assert result.token_id is not None, "a row without its token"
            request.token_ids.append(result.token_id)
            self._totals.num_generated_tokens += 1
            if request.output_logprobs is not None:
                assert result.logprobs is not None, "a token without its logprobs"
                request.output_logprobs.append(result.logprobs)
        self._tables.share(request)
        if not row.samples and request.max_new_tokens > 0:
            return None
        finish = finish_reason(request)
        if finish is not None:
            self._totals.num_finished += 1
        return finish

    def _take_out(self, uid: int) -> Request | None:
        """Remove a request from wherever it is, and free what it holds."""
        request = self._running.pop(uid, None)
        if request is None:
            return self._queue.remove(uid)
        self._tables.release(request)
        return request


def _add_chunk(rows: list[Row], request: Request, budget: int) -> int:
    """Add as much of a request's prompt as the budget allows; return how much."""
    num_tokens = min(request.num_uncomputed, budget)
    # A prompt that is cut uses up the budget, so no other starts: there is one such prompt at most.
    assert num_tokens > 0, "a prompt in pieces gets nothing of a step"
    rows.append(make_row(request, num_tokens))
    return num_tokens
