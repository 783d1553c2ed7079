"""JSON answers and the fold of a stream of deltas; shared by the dialects."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import Request
from fastapi.responses import Response

from headwater.frontend.client import Client
from headwater.frontend.native import raise_for_error
from headwater.frontend.requests import Answer, GenerateRequest
from headwater.frontend.streams import AnswerStream
from headwater.server.disconnect import until_disconnect

__all__ = ["Finished", "collect", "json_response"]


def json_response(
    value: Mapping[str, Any] | Sequence[Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A value as a JSON response."""
    return Response(
        orjson.dumps(value),
        status_code=status,
        media_type="application/json",
        headers=None if headers is None else dict(headers),
    )


class Finished:
    """All answers of a submission.

    Attributes:
        answers: By index.
        stream: Their stream, for prompts and names.
    """

    def __init__(self, answers: list[Answer], stream: AnswerStream) -> None:
        self.answers = answers
        self.stream = stream


async def collect(
    request: Request, client: Client, requests: Sequence[GenerateRequest]
) -> Finished:
    """Submit requests and wait for all answers; a client that leaves aborts them.

    Raises:
        HeadwaterError: A request is wrong, or an answer failed.
        ClientGone: The client has left.
    """
    return await until_disconnect(request.receive, _collect(client, requests))


async def _collect(client: Client, requests: Sequence[GenerateRequest]) -> Finished:
    stream = await client.submit(requests)
    answers = [Answer() for _ in stream.rids]
    try:
        async for index, delta in stream:
            raise_for_error(delta)
            answers[index].add(delta)
    finally:
        await stream.aclose()
    return Finished(answers, stream)
