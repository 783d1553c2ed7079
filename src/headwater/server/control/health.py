"""`/health`, `/ready`, `/health_generate`."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from headwater.errors import EngineDead, Overloaded
from headwater.frontend.requests import GenerateRequest
from headwater.messages.params import SamplingParams
from headwater.server.answer import collect, json_response
from headwater.server.context import ClientDep

__all__ = ["router"]

router = APIRouter(tags=["control"])


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health(client: ClientDep) -> Response:
    """200 while all processes are alive; it does not wait for the queue."""
    if not client.is_alive:
        raise EngineDead("a process of the engine has ended")
    return json_response({"status": "ok"})


@router.head("/ready", include_in_schema=False)
@router.get("/ready")
async def ready(client: ClientDep) -> Response:
    """200 while new requests are taken."""
    if not client.is_alive:
        raise EngineDead("a process of the engine has ended")
    if client.is_draining:
        raise Overloaded("the server is stopping and takes no new requests")
    return json_response({"status": "ok"})


@router.get("/health_generate")
async def health_generate(request: Request, client: ClientDep) -> Response:
    """200 when one token could be generated."""
    params = SamplingParams(max_new_tokens=1, temperature=0.0)
    await collect(request, client, [GenerateRequest(params=params, input_ids=[0])])
    return json_response({"status": "ok"})
