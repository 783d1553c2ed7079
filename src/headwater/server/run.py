"""Runs the server: start the engine, listen, stop gracefully, and tell how it ended."""

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from headwater.config import Config
from headwater.errors import ConfigError
from headwater.frontend.client import Client
from headwater.server.app import build_app
from headwater.server.auth import read_api_keys

__all__ = ["run_server"]

log = logging.getLogger("headwater.server")

_ENGINE_DIED = 1


def run_server(config: Config) -> int:
    """Serve until a signal comes or the engine dies.

    Args:
        config: All settings.

    Returns:
        Exit code: 0 after a signal, 1 when a process of the engine has died.

    Raises:
        ConfigError: A setting is wrong, or the address is taken.
        ModelLoadError: The model cannot be loaded.
    """
    with _runner() as runner:
        return runner.run(_serve(config))


def _runner() -> asyncio.Runner:
    """An event loop of uvloop's where there is one."""
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as err:
        sock.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {err.strerror}", param="port") from None
    sock.listen(2048)
    return sock


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: `_serve` handles them for all processes."""
        yield


async def _serve(config: Config) -> int:
    # Keys and address first: a wrong one should not wait for the model to load.
    api_keys = read_api_keys(config.server)
    sock = _listen(config.server.host, config.server.port)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    try:
        client = await _start(config, stopping)
    except BaseException:
        sock.close()
        raise
    if client is None:
        sock.close()
        return 0
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    app = build_app(client, api_keys)
    return await _run(client, app, sock, f"http://{shown}:{port}", stopping)


async def _start(config: Config, stopping: asyncio.Event) -> Client | None:
    """Start the engine; None when a signal came first."""
    start = asyncio.create_task(Client.start(config))
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait([start, stop], return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if start.done():
        return start.result()
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    return None


async def _run(
    client: Client, app: FastAPI, sock: socket.socket, url: str, stopping: asyncio.Event
) -> int:
    settings = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
    )
    server = _Server(settings)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    log.info("headwater serves %s, ready at %s", client.model_name, url)
    await _first(stopping.wait(), client.died.wait(), serving)
    died = client.died.is_set()
    client.drain()
    if not died:
        log.info("stopping: running requests get %g s", client.config.server.shutdown_timeout_s)
        stopping.clear()  # a second signal ends the waiting
        await _first(client.drained(client.config.server.shutdown_timeout_s), stopping.wait())
    await client.stop()
    server.should_exit = True
    await serving
    return _ENGINE_DIED if died else 0


async def _first(*things: Awaitable[Any]) -> None:
    """Wait for the first of several awaitables; the others go on if they are tasks."""
    tasks = [asyncio.ensure_future(thing) for thing in things]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, thing in zip(tasks, things, strict=True):
        if task is not thing:
            task.cancel()
