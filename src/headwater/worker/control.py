"""Control messages between two steps: flush, integrity, state."""

from headwater.messages.requests import CheckIntegrity, FlushCache, GetState
from headwater.messages.text import ControlReply
from headwater.worker.scheduler.scheduler import Scheduler

__all__ = ["answer_control"]


def answer_control(
    message: FlushCache | CheckIntegrity | GetState, scheduler: Scheduler
) -> ControlReply:
    """Do what a control message asks; the reply says whether it was done."""
    match message:
        case FlushCache():
            if scheduler.flush_cache():
                return ControlReply(seq=message.seq, ok=True, message="the prefix cache is empty")
            text = "requests are running or waiting; nothing was flushed"
            return ControlReply(seq=message.seq, ok=False, message=text)
        case CheckIntegrity():
            try:
                scheduler.check_integrity()
            except AssertionError as err:
                return ControlReply(seq=message.seq, ok=False, message=str(err))
            return ControlReply(seq=message.seq, ok=True)
        case GetState():
            return ControlReply(seq=message.seq, ok=True, data=dict(scheduler.state()))
