"""A real `headwater serve` process for tests, on a free port, cleaned up and checked at the end."""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

__all__ = ["Server", "run_server"]

READY = re.compile(r"ready at (http://\S+)")


@dataclass
class Server:
    """A running server.

    Attributes:
        process: The front end.
        url: Its address.
        lines: What it has logged so far.
        temp_dir: Directory in which it makes its private one.
    """

    process: "subprocess.Popen[str]"
    temp_dir: Path
    url: str = ""
    lines: list[str] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """The scheduler's counts."""
        info: dict[str, Any] = httpx.get(f"{self.url}/server_info", timeout=60).json()
        state: dict[str, Any] = info["state"]
        return state

    def wait_idle(self, timeout_s: float = 30.0) -> dict[str, Any]:
        """Wait until no request runs or waits; return the counts.

        Raises:
            AssertionError: It did not become idle in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            state = self.state()
            if state["num_running"] == 0 and state["num_waiting"] == 0:
                return state
            assert time.monotonic() < deadline, f"the server is not idle: {state}"
            time.sleep(0.02)

    def children(self) -> list[psutil.Process]:
        """The worker and the detokenizer."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, name: str) -> psutil.Process:
        """The child process that runs `headwater.<name>`."""
        return next(c for c in self.children() if f"headwater.{name}" in c.cmdline())


@contextmanager
def run_server(
    model: Path, flags: Sequence[str] = (), *, timeout_s: float = 120.0
) -> Iterator[Server]:
    """Serve a model until the block ends, then check that nothing is left behind.

    Args:
        model: Directory or file of the model.
        flags: More flags of `headwater serve`.
        timeout_s: Bound on the start.

    Raises:
        AssertionError: The server did not start, or left a process or a file behind.
    """
    with tempfile.TemporaryDirectory(prefix="hw-test-") as temp_dir:
        command = [sys.executable, "-m", "headwater", "serve", "--model", str(model)]
        process = subprocess.Popen(
            [*command, "--port", "0", *flags],
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**_environment(), "TMPDIR": temp_dir},
        )
        server = Server(process, Path(temp_dir))
        reader = threading.Thread(target=_read_log, args=(server,), daemon=True)
        reader.start()
        try:
            _wait_ready(server, timeout_s)
            children = server.children()
            yield server
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(timeout=60)
            finally:
                process.kill()
            reader.join(timeout=10)
            assert process.stderr is not None
            process.stderr.close()
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive, f"processes are left: {alive}"
        assert not list(Path(temp_dir).iterdir()), "files are left in the temporary directory"


def _environment() -> dict[str, str]:
    # Two cores: one thread each for the model leaves room for the other processes.
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def _read_log(server: Server) -> None:
    assert server.process.stderr is not None
    for line in server.process.stderr:
        server.lines.append(line.rstrip())
        match = READY.search(line)
        if match:
            server.url = match[1]


def _wait_ready(server: Server, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not server.url:
        assert server.process.poll() is None, "\n".join(server.lines)
        assert time.monotonic() < deadline, "\n".join(server.lines)
        time.sleep(0.02)
