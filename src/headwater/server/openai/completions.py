"""`/v1/completions`: the legacy text completions, several prompts at once."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from headwater.errors import InvalidRequest, NotSupported
from headwater.frontend.client import Client
from headwater.frontend.native import raise_for_error
from headwater.frontend.requests import Answer, GenerateRequest
from headwater.frontend.streams import AnswerStream
from headwater.messages.requests import LogprobSpec
from headwater.messages.text import TextDelta, TokenLogprobs
from headwater.server.answer import Finished, collect, json_response
from headwater.server.body import Fields, check_ids
from headwater.server.context import BodyDep, ClientDep, json_body
from headwater.server.openai.common import (
    Header,
    StreamOptions,
    check_model,
    finish_fields,
    refuse_unsupported,
    sampling_params,
    usage,
    visible_logprobs,
)
from headwater.server.sse import DONE, EventStream, frame

__all__ = ["router"]

router = APIRouter(tags=["openai"])

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 1024
MAX_LOGPROBS = 20
_NOT_SUPPORTED = ("suffix", "prompt_embeds", "lora_path")
_OBJECT = "text_completion"

_EXAMPLE = json_body({"prompt": "The capital of France is", "max_tokens": 8}, required=["prompt"])


@dataclass(slots=True, frozen=True)
class _Completion:
    """A translated body."""

    requests: list[GenerateRequest]
    header: Header
    options: StreamOptions
    echo: bool
    with_ids: bool

    @property
    def n(self) -> int:
        """Answers to each prompt."""
        return self.requests[0].params.n


@router.post("/v1/completions", openapi_extra=_EXAMPLE)
async def completions(request: Request, body: BodyDep, client: ClientDep) -> Response:
    """Continue one or several prompts."""
    completion = _translate(body, client)
    if completion.options.stream:
        stream = await client.submit(completion.requests)
        return EventStream(_events(stream, completion, client))
    done = await collect(request, client, completion.requests)
    return json_response(_whole(done, completion, client))


def _translate(body: Fields, client: Client) -> _Completion:
    model = check_model(body, client)
    refuse_unsupported(body, _NOT_SUPPORTED)
    options = StreamOptions(body)
    max_tokens = body.integer("max_tokens")
    is_explicit = max_tokens is not None
    params = sampling_params(
        body,
        client,
        max_tokens=max_tokens if max_tokens is not None else DEFAULT_MAX_TOKENS,
        max_tokens_name="max_tokens",
    )
    best_of = body.integer("best_of", low=1)
    if best_of is not None and best_of != params.n:
        raise NotSupported("best_of other than n is not supported yet", param="best_of")
    echo, rid = body.flag("echo"), body.text("rid")
    prompts = _prompts(body)
    logprobs = _logprob_spec(body, echo)
    requests = [
        GenerateRequest(
            params=params,
            text=prompt if isinstance(prompt, str) else None,
            input_ids=prompt if isinstance(prompt, list) else None,
            rid=rid if rid is None or len(prompts) == 1 else f"{rid}_{i}",
            logprobs=logprobs,
            stream=options.stream,
            cache_salt=body.text("cache_salt") or "",
            prompt_param="prompt" if len(prompts) == 1 else f"prompt[{i}]",
            max_new_tokens_param="max_tokens",
            is_max_new_tokens_explicit=is_explicit,
        )
        for i, prompt in enumerate(prompts)
    ]
    header = Header("cmpl", rid, model)
    return _Completion(requests, header, options, echo, body.flag("return_token_ids"))


def _prompts(body: Fields) -> list[Any]:
    """Prompts as texts or lists of ids; a flat list of ids is one prompt."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise InvalidRequest("prompt must be a string or a non-empty list", param="prompt")
    if not isinstance(prompt[0], str | list):
        return [check_ids(prompt, "prompt")]
    if len(prompt) > MAX_PROMPTS:
        raise InvalidRequest(f"prompt may hold {MAX_PROMPTS} prompts", param="prompt")
    for i, item in enumerate(prompt):
        if not isinstance(item, str):
            check_ids(item, f"prompt[{i}]")
    return prompt


def _logprob_spec(body: Fields, echo: bool) -> LogprobSpec | None:
    value = body.get("logprobs")
    if value is None or value is False:
        return None
    top = 0 if value is True else body.integer("logprobs", high=MAX_LOGPROBS) or 0
    return LogprobSpec(start_len=0 if echo else -1, top_num=top, with_text=True)


class _Choice:
    """One choice while it comes: its text so far counts for `text_offset`."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt  # echoed before the first text
        self._offset = 0

    def render(self, part: Answer | TextDelta, with_logprobs: bool) -> dict[str, Any]:
        """Text and log-probabilities of a delta, or of a whole answer."""
        text, self._prompt = self._prompt + part.text, ""
        records = [*(part.input_logprobs or ()), *visible_logprobs(part)]
        logprobs = self._logprobs(records) if with_logprobs else None
        return {"text": text, "logprobs": logprobs}

    def _logprobs(self, records: Sequence[TokenLogprobs]) -> dict[str, Any]:
        out: dict[str, Any] = {
            "text_offset": [],
            "token_logprobs": [],
            "tokens": [],
            "top_logprobs": [],
        }
        for record in records:
            text = record.token.text or ""
            out["tokens"].append(text)
            out["token_logprobs"].append(record.token.logprob)
            top = None if record.top is None else {t.text or "": t.logprob for t in record.top}
            out["top_logprobs"].append(top)
            out["text_offset"].append(self._offset)
            self._offset += len(text)
        return out


def _echoes(stream: AnswerStream, completion: _Completion, client: Client) -> list[_Choice]:
    """A choice for each answer, with the prompt's text where it is echoed."""
    texts = []
    for request, ids in zip(completion.requests, stream.prompts, strict=True):
        if not completion.echo:
            texts.append("")
        elif request.text is not None:
            texts.append(request.text)
        else:
            texts.append(client.tokenizer.decode(ids))
    return [_Choice(texts[index // completion.n]) for index in range(len(stream.rids))]


def _whole(done: Finished, completion: _Completion, client: Client) -> dict[str, Any]:
    with_logprobs = completion.requests[0].logprobs is not None
    choices = []
    for index, choice in enumerate(_echoes(done.stream, completion, client)):
        answer = done.answers[index]
        fields = {"index": index, **choice.render(answer, with_logprobs)}
        fields |= finish_fields(answer.finish)
        if completion.with_ids:
            fields["token_ids"] = answer.ids
            fields["prompt_token_ids"] = done.stream.prompts[index // completion.n]
        choices.append(fields)
    header = completion.header.fields(_OBJECT)
    return {**header, "choices": choices, "usage": usage(done.answers, completion.n)}


async def _events(
    stream: AnswerStream, completion: _Completion, client: Client
) -> AsyncGenerator[bytes, None]:
    header = completion.header.fields(_OBJECT)
    with_logprobs = completion.requests[0].logprobs is not None
    none: dict[str, Any] = {"usage": None} if completion.options.include_usage else {}
    choices = _echoes(stream, completion, client)
    counts = [Answer() for _ in choices]
    try:
        async for index, delta in stream:
            raise_for_error(delta)
            count = counts[index]
            count.prompt_tokens, count.cached_tokens = delta.prompt_tokens, delta.cached_tokens
            count.completion_tokens = delta.completion_tokens
            fields = {"index": index, **choices[index].render(delta, with_logprobs)}
            if completion.with_ids:
                fields["token_ids"] = delta.ids
            tail = none
            if completion.options.continuous_usage:
                tail = {"usage": usage(counts, completion.n)}
            if fields["text"] or (with_logprobs and delta.ids) or completion.with_ids:
                fields["finish_reason"] = None
                yield frame({**header, "choices": [fields], **tail})
            if delta.finish is not None:
                fields = {"index": index, "text": "", "logprobs": None}
                fields |= finish_fields(delta.finish)
                yield frame({**header, "choices": [fields], **tail})
        if completion.options.include_usage:
            yield frame({**header, "choices": [], "usage": usage(counts, completion.n)})
        yield DONE
    finally:
        await stream.aclose()
