"""`/tokenize` and `/detokenize`."""

import asyncio

from fastapi import APIRouter
from fastapi.responses import Response

from headwater.errors import InvalidRequest
from headwater.frontend.client import Client
from headwater.server.answer import json_response
from headwater.server.body import Fields, check_ids
from headwater.server.context import BodyDep, ClientDep, json_body

__all__ = ["router"]

router = APIRouter(tags=["native"])


@router.post(
    "/tokenize", openapi_extra=json_body({"prompt": "Hello", "add_special_tokens": True}, [])
)
@router.post("/v1/tokenize", include_in_schema=False)
async def tokenize(body: BodyDep, client: ClientDep) -> Response:
    """Ids of a `prompt` (or `text`), or of `messages` through the chat template."""
    messages = body.get("messages")
    if messages is not None:
        ids = (await asyncio.to_thread(client.encode_chat, messages)).ids
    else:
        text = body.text("prompt", body.text("text"))
        if text is None:
            raise InvalidRequest("give prompt or messages", param="prompt")
        add = body.flag("add_special_tokens", True)
        ids = await _encode(client, text, add)
    return json_response(
        {"tokens": ids, "count": len(ids), "max_model_len": client.card.context_length}
    )


@router.post("/detokenize", openapi_extra=json_body({"tokens": [1, 2, 3]}, ["tokens"]))
@router.post("/v1/detokenize", include_in_schema=False)
async def detokenize(body: BodyDep, client: ClientDep) -> Response:
    """Text of `tokens`."""
    ids = _checked_ids(body, client)
    skip = body.flag("skip_special_tokens", True)
    text = await asyncio.to_thread(client.tokenizer.decode, ids, skip_special_tokens=skip)
    return json_response({"text": text})


def _checked_ids(body: Fields, client: Client) -> list[int]:
    ids = check_ids(body.get("tokens"), "tokens")
    size = client.card.vocab_size
    for token_id in ids:
        if not 0 <= token_id < size:
            raise InvalidRequest(f"tokens must lie in [0, {size}), got {token_id}", param="tokens")
    return ids


async def _encode(client: Client, text: str, add_special_tokens: bool) -> list[int]:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest("prompt holds half of a surrogate pair", param="prompt") from None
    client.check_text(text, "prompt")
    return await asyncio.to_thread(
        client.tokenizer.encode, text, add_special_tokens=add_special_tokens
    )
