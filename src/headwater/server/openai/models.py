"""`/v1/models`."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from headwater.errors import ModelNotFound
from headwater.frontend.client import Client
from headwater.server.answer import json_response
from headwater.server.context import ClientDep
from headwater.server.openai.openapi import describe
from headwater.server.openai.protocol.models import Model, ModelList

__all__ = ["router"]

router = APIRouter(tags=["openai"])


def _card(client: Client, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(client.started_at),
        "owned_by": "headwater",
        "root": client.model_path,
        "parent": None,
        "max_model_len": client.card.context_length,
    }


@router.get("/v1/models", **describe(None, ModelList))
async def list_models(client: ClientDep) -> Response:
    """The names of the model that is served."""
    cards = [_card(client, name) for name in client.model_names]
    return json_response({"object": "list", "data": cards})


@router.get("/v1/models/{name:path}", **describe(None, Model))
async def retrieve_model(name: str, client: ClientDep) -> Response:
    """One of them; `default` is the first, as it is in requests."""
    if name == "default":
        name = client.model_name
    if name not in client.model_names:
        raise ModelNotFound(f"the model {name!r:.200} does not exist here", param="model")
    return json_response(_card(client, name))
