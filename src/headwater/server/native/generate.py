"""`/generate`: the runtime's own interface, as SGLang's clients speak it."""

import time
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from headwater.frontend.native import native_result, raise_for_error
from headwater.frontend.requests import Answer
from headwater.frontend.streams import AnswerStream
from headwater.server.answer import collect, json_response
from headwater.server.context import BodyDep, ClientDep, json_body
from headwater.server.native.translate import NativeRequest, translate
from headwater.server.sse import DONE, EventStream, frame

__all__ = ["router"]

router = APIRouter(tags=["native"])

_EXAMPLE = json_body(
    {
        "text": "The capital of France is",
        "sampling_params": {"max_new_tokens": 8, "temperature": 0},
        "stream": False,
    },
    required=[],
)


@router.put("/generate", openapi_extra=_EXAMPLE)
@router.post("/generate", openapi_extra=_EXAMPLE)
async def generate(request: Request, body: BodyDep, client: ClientDep) -> Response:
    """Answer one prompt or a batch, streamed or not."""
    started_at = time.monotonic()
    native = translate(body, client)
    if native.stream:
        stream = await client.submit(native.requests)
        interval_s = client.config.server.sse_ping_interval_s
        return EventStream(_events(stream, native, started_at), ping_interval_s=interval_s)
    done = await collect(request, client, native.requests)
    results = [
        _result(answer, native, done.stream, index, started_at)
        for index, answer in enumerate(done.answers)
    ]
    return json_response(results if native.is_list else results[0])


async def _events(
    stream: AnswerStream, native: NativeRequest, started_at: float
) -> AsyncGenerator[bytes, None]:
    answers = [Answer() for _ in stream.rids]
    try:
        async for index, delta in stream:
            raise_for_error(delta)
            if native.incremental:
                answers[index] = Answer()
            answers[index].add(delta)
            yield frame(_result(answers[index], native, stream, index, started_at))
        yield DONE
    finally:
        await stream.aclose()


def _result(
    answer: Answer, native: NativeRequest, stream: AnswerStream, index: int, started_at: float
) -> dict[str, Any]:
    number = index // native.requests[0].params.n
    return native_result(
        answer,
        rid=stream.rids[index],
        started_at=started_at,
        index=index if native.is_list else None,
        prompt_ids=stream.prompts[number] if native.with_prompt_ids else None,
        with_logprobs=native.requests[number].logprobs is not None,
    )
