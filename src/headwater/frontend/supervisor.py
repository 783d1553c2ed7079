"""Starts the worker and the detokenizers, watches them, and ends them.

Children are started by module name and never imported. Each holds the other end of a pipe as its
standard input: when this process ends in whatever way, they see end-of-file and exit.
"""

import asyncio
import logging
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from headwater.errors import EngineDead, ModelLoadError
from headwater.messages.codec import VERSION
from headwater.messages.sockets import detokenizer_name
from headwater.messages.text import ModelCard, Ready

__all__ = ["Supervisor", "make_socket_dir"]

log = logging.getLogger("headwater.supervisor")

_START_FAILED = 2  # the worker's exit code for a model it cannot serve
_END_TIMEOUT_S = 5.0


def make_socket_dir() -> Path:
    """A private directory (mode 0700) for sockets and what the children read.

    An ipc path may have about 100 bytes, so a long TMPDIR is avoided.
    """
    base = tempfile.gettempdir()
    if len(base) > 60:
        base = "/tmp"
    return Path(tempfile.mkdtemp(prefix="headwater-", dir=base))


class Supervisor:
    """The child processes of one engine.

    Args:
        socket_dir: Made by `make_socket_dir`; removed by `stop`.
        num_detokenizers: How many of them to start.
        on_death: Called in the event loop when a child ends that should not.
    """

    def __init__(
        self, socket_dir: Path, num_detokenizers: int, on_death: Callable[[EngineDead], None]
    ) -> None:
        self.socket_dir = socket_dir
        # Name of each child to its module and arguments.
        self._children: dict[str, list[str]] = {"worker": ["headwater.worker"]}
        for number in range(num_detokenizers):
            command = ["headwater.detokenizer", "--number", str(number)]
            self._children[detokenizer_name(number)] = command
        self._on_death = on_death
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._exited: dict[str, asyncio.Event] = {}
        self._ready: dict[str, Ready] = {}
        self._news = asyncio.Event()
        self._is_stopping = False

    def start(self) -> None:
        """Start the children; they report with `Ready`."""
        loop = asyncio.get_running_loop()
        for name, words in self._children.items():
            # -P: the working directory must not be able to shadow modules.
            command = [sys.executable, "-P", "-m", *words, "--socket-dir", str(self.socket_dir)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE)
            self._processes[name] = process
            self._exited[name] = asyncio.Event()
            # A thread and not the loop's child watcher: it works in any loop of any thread.
            threading.Thread(
                target=self._watch, args=(name, process, loop), daemon=True, name=f"watch-{name}"
            ).start()

    def note_ready(self, ready: Ready) -> None:
        """A child is up."""
        self._ready[ready.process] = ready
        self._news.set()

    async def wait_ready(self) -> ModelCard:
        """Wait until all children are up; return the model's card.

        Raises:
            ModelLoadError: A child ended before it was ready, or speaks another version.
        """
        while len(self._ready) < len(self._children):
            for name in self._children:
                code = self._processes[name].returncode
                if code is not None:
                    hint = "its reason is in the log" if code == _START_FAILED else "see the log"
                    raise ModelLoadError(f"the {name} ended with exit code {code}; {hint}")
            self._news.clear()
            await self._news.wait()
        for name, ready in self._ready.items():
            if ready.version != VERSION:
                raise ModelLoadError(
                    f"the {name} speaks message version {ready.version}, this process {VERSION}: "
                    "two installations are mixed"
                )
        card = self._ready["worker"].card
        assert card is not None, "the worker greets with its model's card"
        return card

    def pids(self) -> dict[str, int]:
        """Process ids of the children."""
        return {name: process.pid for name, process in self._processes.items()}

    async def stop(self) -> None:
        """End all children and remove the socket directory."""
        self._is_stopping = True
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
        for name, process in self._processes.items():
            try:
                await asyncio.wait_for(self._exited[name].wait(), _END_TIMEOUT_S)
            except TimeoutError:
                log.warning("the %s does not end by itself and is killed", name)
                process.kill()
                await self._exited[name].wait()
        shutil.rmtree(self.socket_dir, ignore_errors=True)

    def kill(self) -> None:
        """End all children at once, without waiting; for an exit that cannot be graceful."""
        self._is_stopping = True
        for process in self._processes.values():
            process.kill()
        shutil.rmtree(self.socket_dir, ignore_errors=True)

    def _watch(
        self, name: str, process: "subprocess.Popen[bytes]", loop: asyncio.AbstractEventLoop
    ) -> None:
        process.wait()
        try:
            loop.call_soon_threadsafe(self._note_exit, name)
        except RuntimeError:  # the loop has been closed: nobody waits any more
            log.debug("the %s ended after its event loop", name)

    def _note_exit(self, name: str) -> None:
        self._exited[name].set()
        self._news.set()
        code = self._processes[name].returncode
        if self._is_stopping:
            return
        reason = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        if len(self._ready) == len(self._children):
            log.error("the %s ended unexpectedly (%s)", name, reason)
            self._on_death(EngineDead(f"the {name} process ended unexpectedly ({reason})"))
