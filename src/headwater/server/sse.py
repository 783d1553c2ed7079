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

__all__ = ["DONE", "EventStream", "frame"]

log = logging.getLogger("headwater.server")

DONE = b"data: [DONE]\n\n"


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
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__()
        self._events = events
        self.headers["cache-control"] = "no-cache"
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the client leaves."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        pump = asyncio.create_task(self._pump(send))
        watcher = asyncio.create_task(wait_disconnect(receive))
        try:
            await asyncio.wait([pump, watcher], return_when=asyncio.FIRST_COMPLETED)
        finally:
            pump.cancel()
            watcher.cancel()
            await asyncio.gather(pump, watcher, return_exceptions=True)
            await self._events.aclose()

    async def _pump(self, send: Send) -> None:
        try:
            async for data in self._events:
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
