"""Clients that go away: their request is cancelled, streamed or not."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

__all__ = ["ClientGone", "until_disconnect", "wait_disconnect"]

T = TypeVar("T")


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


async def wait_disconnect(receive: Receive) -> None:
    """Return when the client has gone; the request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, and cancel it when the client goes away.

    Raises:
        ClientGone: The client has gone.
    """
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(wait_disconnect(receive))
    try:
        both: list[asyncio.Task[Any]] = [task, watcher]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)
