"""What a handler needs: the client of the runtime and the request's checked body."""

from typing import Annotated

from fastapi import Depends, Request

from headwater.frontend.client import Client
from headwater.server.body import Fields, read_fields

__all__ = ["BodyDep", "ClientDep", "json_body"]


def _client(request: Request) -> Client:
    client: Client = request.app.state.client
    return client


async def _body(request: Request) -> Fields:
    max_bytes = _client(request).config.server.max_body_bytes
    return await read_fields(request, max_bytes=max_bytes)


ClientDep = Annotated[Client, Depends(_client)]
BodyDep = Annotated[Fields, Depends(_body)]


def json_body(example: dict[str, object], required: list[str]) -> dict[str, object]:
    """OpenAPI's description of a body that the handler reads itself.

    Args:
        example: Shown in /docs, ready to be sent.
        required: Fields that must be there.
    """
    schema = {"type": "object", "required": required, "example": example}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
    }
