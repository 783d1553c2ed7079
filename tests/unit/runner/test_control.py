"""Replies to control messages that a healthy worker does not give."""

from headwater.messages.requests import CheckIntegrity, GetState
from headwater.worker.control import answer_control
from headwater.worker.scheduler.scheduler import Scheduler, SchedulerOptions


class BrokenScheduler(Scheduler):
    """One that has lost a page."""

    def check_integrity(self) -> None:
        """Fail as a real check does."""
        raise AssertionError("page 3 has no owner")


def test_a_failed_check_is_a_reply_and_not_a_crash() -> None:
    """Whoever asks must learn what is wrong; the answers of others go on."""
    options = SchedulerOptions(num_pages=4, page_size=16, context_length=64)
    reply = answer_control(CheckIntegrity(seq=7), BrokenScheduler(options))
    assert (reply.seq, reply.ok, reply.message) == (7, False, "page 3 has no owner")


def test_state_has_counts_of_pages_and_requests() -> None:
    """What `/server_info` shows and tests of leaks rely on."""
    options = SchedulerOptions(num_pages=4, page_size=16, context_length=64)
    reply = answer_control(GetState(seq=8), Scheduler(options))
    assert reply.ok
    assert reply.data["num_pages"] == reply.data["num_free_pages"] == 4
    assert reply.data["num_running"] == reply.data["num_waiting"] == 0
