"""Sockets between the processes: ZeroMQ push/pull over ipc in a private directory.

Each process pulls from one socket that it binds and pushes to those of the others:
`worker`, `detokenizer_0` ... and `front_end`. It knows bytes' types, not what they mean.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import zmq
import zmq.asyncio

from headwater.messages.codec import Codec

__all__ = ["AsyncPullSocket", "PullSocket", "PushSocket", "detokenizer_name", "endpoint"]

T = TypeVar("T")


def detokenizer_name(number: int) -> str:
    """Name of a detokenizer process; answer `uid` belongs to number `uid % count`."""
    return f"detokenizer_{number}"


def endpoint(socket_dir: Path, process: str) -> str:
    """Address of a process's inbox. The directory must be private (mode 0700)."""
    return f"ipc://{socket_dir / process}"


class PushSocket(Generic[T]):
    """Sends messages to one process. Never blocks: messages queue in memory.

    Args:
        socket_dir: Directory of the sockets.
        process: Who receives.
        codec: Codec of the direction.
    """

    def __init__(self, socket_dir: Path, process: str, codec: Codec[T]) -> None:
        self._codec = codec
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, 0)  # admission bounds what can be in flight
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint(socket_dir, process))

    def send(self, message: T) -> None:
        """Queue a message; returns at once."""
        self._socket.send(self._codec.encode(message), zmq.NOBLOCK)

    def close(self) -> None:
        """Close; messages not yet taken over are dropped."""
        self._socket.close()


class PullSocket(Generic[T]):
    """Receives messages, in a process without an event loop.

    Args:
        socket_dir: Directory of the sockets.
        process: Whose inbox this is.
        codec: Codec of the direction.
        parent_fd: File descriptor whose other end the parent holds (standard input): end-of-file
            there is the parent's death.
    """

    def __init__(self, socket_dir: Path, process: str, codec: Codec[T], parent_fd: int) -> None:
        self._codec = codec
        self._parent_fd = parent_fd
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.bind(endpoint(socket_dir, process))
        self._parent_poller = zmq.Poller()
        self._parent_poller.register(parent_fd, zmq.POLLIN)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(parent_fd, zmq.POLLIN)

    def wait(self) -> bool:
        """Sleep until a message is there; False when the parent process is gone."""
        return self._parent_fd not in dict(self._poller.poll())

    def is_parent_alive(self) -> bool:
        """Whether the parent process is still there; never waits."""
        return not self._parent_poller.poll(0)

    def drain(self) -> Iterator[T]:
        """Yield the messages that are there now; never waits."""
        while True:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield self._codec.decode(data)

    def close(self) -> None:
        """Close and remove the socket file."""
        self._socket.close()


class AsyncPullSocket(Generic[T]):
    """Receives messages in an asyncio process.

    Args:
        socket_dir: Directory of the sockets.
        process: Whose inbox this is.
        codec: Codec of the direction.
    """

    def __init__(self, socket_dir: Path, process: str, codec: Codec[T]) -> None:
        self._codec = codec
        self._socket = zmq.asyncio.Context.instance().socket(zmq.PULL)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.bind(endpoint(socket_dir, process))

    async def receive(self) -> T:
        """Wait for the next message."""
        return self._codec.decode(await self._socket.recv())

    def close(self) -> None:
        """Close and remove the socket file."""
        self._socket.close(linger=0)
