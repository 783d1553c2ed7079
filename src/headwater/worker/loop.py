"""The worker's loop: receive, schedule, run, send.

It knows the order of things, not what they are: policy is in `scheduler`, computing in `runner`.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from headwater.messages.requests import Abort, Generate, Stop, ToWorker
from headwater.messages.sockets import PullSocket, PushSocket
from headwater.messages.text import ToFrontEnd
from headwater.messages.tokens import ToDetokenizer, TokenBatch, TokenOutput
from headwater.worker.control import answer_control
from headwater.worker.scheduler.plan import StepPlan, StepResult
from headwater.worker.scheduler.scheduler import Scheduler

__all__ = ["Runner", "Worker"]


class Runner(Protocol):
    """Computes step plans."""

    def run(self, plan: StepPlan) -> StepResult:
        """Compute every row of a plan."""

    def forget(self, uids: Sequence[int]) -> None:
        """Drop what is kept of requests that have ended."""


class Worker:
    """Scheduler and runner between their sockets.

    Args:
        scheduler: Who runs.
        runner: What computes.
        inbox: Messages of the front end and the detokenizer.
        detokenizers: Where token ids go; answer `uid` to number `uid % count`.
        front_end: Where replies to control messages go.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        inbox: PullSocket[ToWorker],
        detokenizers: Sequence[PushSocket[ToDetokenizer]],
        front_end: PushSocket[ToFrontEnd],
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._inbox = inbox
        self._detokenizers = detokenizers
        self._front_end = front_end

    def run(self) -> None:
        """Serve until the parent process is gone; sleeps while there is nothing to do."""
        while self._inbox.is_parent_alive():
            if not self._scheduler.has_work and not self._inbox.wait():
                return
            for message in self._inbox.drain():
                self._receive(message)
            self._step()

    def _step(self) -> None:
        plan = self._scheduler.plan()
        if plan is not None:
            result = self._runner.run(plan)
            self._send(self._scheduler.commit(plan, result))

    def _receive(self, message: ToWorker) -> None:
        match message:
            case Generate():
                self._send(self._scheduler.add(message))
            case Abort():
                self._send(self._scheduler.abort(message.uids, message.message))
            case Stop():
                self._send(self._scheduler.stop(message.uid, message.num_ids))
            case _:
                self._front_end.send(answer_control(message, self._scheduler))

    def _send(self, outputs: Iterable[TokenOutput]) -> None:
        batch = list(outputs)
        if not batch:
            return
        self._runner.forget([output.uid for output in batch if output.finish is not None])
        count = len(self._detokenizers)
        for number, socket in enumerate(self._detokenizers):
            part = batch if count == 1 else [o for o in batch if o.uid % count == number]
            if part:
                socket.send(TokenBatch(part))
