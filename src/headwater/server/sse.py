"""Server-sent events: frames of bytes, an error as the last of them, and clients that leave."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.errors import HeadwaterError, InternalError
from headwater.server.disconnect import wait_disconnect
from headwater.server.errors import error_object

__all__ = ["DONE", "PING", "EventStream", "frame"]

log = logging.getLogger("headwater.server")

DONE = b"data: [DONE]\n\n"
PING = b": keep-alive\n\n"


def frame(value: Mapping[str, Any]) -> bytes:
    """One event."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


class EventStream(Response):
    """A response that sends what a generator yields.

    The generator ends with `DONE` by itself. An error it raises is sent as a last event without
    `DONE`, so that a client can tell failure from success. When the client leaves, the generator
    is closed, which aborts what it runs.

    Args:
        events: Yields frames.
        headers: More headers.
        ping_interval_s: After so long without an event a comment is sent, so that proxies and
            clients do not take a long prefill for a dead connection; 0 sends none.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        headers: Mapping[str, str] | None = None,
        *,
        ping_interval_s: float,
    ) -> None:
        super().__init__(headers=None if headers is None else dict(headers))
        self._events = events
        self._ping_interval_s = ping_interval_s
        self._num_sent = 0
        self.headers["cache-control"] = "no-cache"
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the client leaves."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        pump = asyncio.create_task(self._pump(send))
        watcher = asyncio.create_task(wait_disconnect(receive))
        tasks = [pump, watcher]
        if self._ping_interval_s > 0:
            tasks.append(asyncio.create_task(self._ping(send, pump)))
        try:
            await asyncio.wait([pump, watcher], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._events.aclose()

    async def _ping(self, send: Send, pump: "asyncio.Task[None]") -> None:
        """Send comments while no events come."""
        while True:
            seen = self._num_sent
            await asyncio.sleep(self._ping_interval_s)
            if self._num_sent == seen and not pump.done():
                await send({"type": "http.response.body", "body": PING, "more_body": True})

    async def _pump(self, send: Send) -> None:
        try:
            async for data in self._events:
                self._num_sent += 1
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except HeadwaterError as error:
            await self._send_error(send, error)
        except OSError:  # the connection broke while sending
            return
        except Exception:
            log.exception("a stream failed")
            await self._send_error(send, InternalError("headwater failed; see its log"))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_error(self, send: Send, error: HeadwaterError) -> None:
        body = frame(error_object(error))
        await send({"type": "http.response.body", "body": body, "more_body": True})
