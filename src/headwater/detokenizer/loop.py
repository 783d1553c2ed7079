"""The detokenizer's loop: token batches in, text batches and stops out.

It knows sockets; what an output means is in `detokenizer.state`.
"""

import logging
import sys
from pathlib import Path

from headwater.detokenizer.state import Detokenizer
from headwater.messages.codec import DETOKENIZER_CODEC, FRONT_END_CODEC, VERSION, WORKER_CODEC
from headwater.messages.sockets import PullSocket, PushSocket, detokenizer_name
from headwater.messages.text import Ready, TextBatch
from headwater.text.tokenizer import load_tokenizer

__all__ = ["run"]

log = logging.getLogger("headwater.detokenizer")


def run(socket_dir: Path, number: int) -> int:
    """Serve until the parent process is gone.

    Args:
        socket_dir: Private directory of the sockets, with `tokenizer.json`.
        number: Which of the detokenizers this is.

    Returns:
        Exit code: 0 when the parent ended, 1 after an error of our own.
    """
    detokenizer = Detokenizer(load_tokenizer(socket_dir / "tokenizer.json"))
    name = detokenizer_name(number)
    inbox = PullSocket(socket_dir, name, DETOKENIZER_CODEC, sys.stdin.fileno())
    front_end = PushSocket(socket_dir, "front_end", FRONT_END_CODEC)
    worker = PushSocket(socket_dir, "worker", WORKER_CODEC)
    front_end.send(Ready(process=name, version=VERSION))
    try:
        while inbox.wait():
            deltas, stops = [], []
            for batch in inbox.drain():
                new_deltas, new_stops = detokenizer.feed(batch)
                deltas += new_deltas
                stops += new_stops
            # Stops first: each one frees a slot of the worker.
            for stop in stops:
                worker.send(stop)
            if deltas:
                front_end.send(TextBatch(deltas))
    except Exception:
        log.exception("the detokenizer failed")
        return 1
    finally:
        for socket in (inbox, front_end, worker):
            socket.close()
    return 0
