"""Event streams: pings while nothing comes, errors as the last event."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from headwater.errors import Overloaded
from headwater.server.sse import DONE, PING, EventStream, frame


async def run(events: AsyncGenerator[bytes, None], ping_interval_s: float) -> list[bytes]:
    """Everything that a client gets."""
    sent: list[bytes] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    response = EventStream(events, {"x-request-id": "7"}, ping_interval_s=ping_interval_s)
    assert response.headers["x-request-id"] == "7"
    await response({"type": "http"}, receive, send)
    return sent


async def slow(pause_s: float) -> AsyncGenerator[bytes, None]:
    """Two events with a pause between."""
    yield frame({"a": 1})
    await asyncio.sleep(pause_s)
    yield DONE


async def test_pings_while_nothing_comes() -> None:
    """Comments, which every client skips, and none after the end."""
    sent = await run(slow(0.5), 0.05)
    assert PING in sent
    assert [piece for piece in sent if piece not in (PING, b"")] == [frame({"a": 1}), DONE]
    assert sent[-1] == b""


async def test_no_pings_when_switched_off() -> None:
    """0 means none."""
    assert PING not in await run(slow(0.2), 0)


async def test_an_error_is_the_last_event() -> None:
    """Without DONE."""

    async def broken() -> AsyncGenerator[bytes, None]:
        yield frame({"a": 1})
        raise Overloaded("too much")

    sent = await run(broken(), 10)
    assert b"too much" in sent[-2]
    assert DONE not in sent
