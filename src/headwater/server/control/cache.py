"""`/flush_cache` and `/abort_request`."""

from fastapi import APIRouter
from fastapi.responses import Response

from headwater.errors import Conflict, InvalidRequest
from headwater.server.answer import json_response
from headwater.server.context import BodyDep, ClientDep, json_body

__all__ = ["router"]

router = APIRouter(tags=["control"])


@router.post("/flush_cache")
@router.get("/flush_cache")
async def flush_cache(client: ClientDep) -> Response:
    """Empty the prefix cache; 409 while requests run or wait."""
    reply = await client.flush_cache()
    if not reply.ok:
        raise Conflict(reply.message)
    return json_response({"success": True, "message": reply.message})


@router.post("/abort_request", openapi_extra=json_body({"rid": "my-request"}, []))
async def abort_request(body: BodyDep, client: ClientDep) -> Response:
    """End requests by `rid`, or all of them with `abort_all`."""
    rid, abort_all = body.text("rid"), body.flag("abort_all")
    if not rid and not abort_all:
        raise InvalidRequest("give rid, or abort_all: true", param="rid")
    return json_response({"success": True, "num_aborted": client.abort(rid, abort_all=abort_all)})
