"""`/v1/completions`: the legacy text completions, several prompts at once."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from headwater.errors import InvalidRequest
from headwater.frontend.native import raise_for_error
from headwater.frontend.requests import Answer, GenerateRequest
from headwater.frontend.streams import AnswerStream
from headwater.messages.params import MAX_N
from headwater.messages.requests import LogprobSpec
from headwater.messages.text import TextDelta
from headwater.server.answer import Finished
from headwater.server.body import check_ids
from headwater.server.context import BodyDep, ClientDep
from headwater.server.openai.completion_logprobs import CompletionLogprobs
from headwater.server.openai.endpoint import Job, OpenAIEndpoint
from headwater.server.openai.openapi import describe
from headwater.server.openai.protocol.completions import Completion, CompletionRequest
from headwater.server.openai.render import Counts, finish_fields, usage, visible_logprobs
from headwater.server.sse import DONE, frame

__all__ = ["router"]

router = APIRouter(tags=["openai"])

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 1024
MAX_LOGPROBS = 20
_OBJECT = "text_completion"


@router.post("/v1/completions", **describe(CompletionRequest, Completion, chunk=Completion))
async def completions(request: Request, body: BodyDep, client: ClientDep) -> Response:
    """Continue one or several prompts."""
    return await CompletionEndpoint(client).handle(request, body)


class CompletionEndpoint(OpenAIEndpoint[CompletionRequest]):
    """Text completions."""

    body_type = CompletionRequest
    id_prefix = "cmpl"
    not_supported = ("prompt_embeds",)

    async def convert(self, body: CompletionRequest) -> Job[CompletionRequest]:
        """One native request for each prompt."""
        is_explicit = body.max_tokens is not None
        max_tokens = body.max_tokens if is_explicit else DEFAULT_MAX_TOKENS
        num_made = {"n": _num_made(body)} if body.best_of is not None else {}
        params = self.params(
            body, max_tokens_field="max_tokens", max_new_tokens=max_tokens, **num_made
        )
        prompts = _prompts(body.prompt)
        if body.suffix is not None:
            prompts = await asyncio.to_thread(self._infill, prompts, body.suffix)
        spec = _logprob_spec(body)
        add_special = body.add_special_tokens is not False
        requests = [
            GenerateRequest(
                params=params,
                text=prompt if isinstance(prompt, str) else None,
                input_ids=prompt if isinstance(prompt, list) else None,
                add_special_tokens=add_special,
                rid=body.rid if body.rid is None or len(prompts) == 1 else f"{body.rid}_{i}",
                logprobs=spec,
                stream=bool(body.stream),
                cache_salt=body.cache_salt or "",
                prompt_param=_prompt_param(i, len(prompts)),
                max_new_tokens_param="max_tokens",
                is_max_new_tokens_explicit=is_explicit,
            )
            for i, prompt in enumerate(prompts)
        ]
        return Job(body, self.header(body), requests, await asyncio.to_thread(self._echoes, body))

    def _infill(self, prompts: Sequence[str | list[int]], suffix: str) -> list[str | list[int]]:
        """Each prompt with what comes after its answer."""
        self.client.check_text(suffix, "suffix")
        for i, prompt in enumerate(prompts):
            if isinstance(prompt, str):
                self.client.check_text(prompt, _prompt_param(i, len(prompts)))
        return [self.client.encode_infill(prompt, suffix) for prompt in prompts]

    def _echoes(self, body: CompletionRequest) -> list[str]:
        """The prompts' texts, where they are echoed."""
        prompts = _prompts(body.prompt)
        if not body.echo:
            return [""] * len(prompts)
        skip = body.skip_special_tokens is not False
        decode = self.client.tokenizer.decode
        return [p if isinstance(p, str) else decode(p, skip_special_tokens=skip) for p in prompts]

    def respond(self, done: Finished, job: Job[CompletionRequest]) -> dict[str, Any]:
        """One object with all choices."""
        choices: list[dict[str, Any]] = []
        for i in range(len(job.requests)):
            answers = _best(done.answers[i * job.n : (i + 1) * job.n], job.body)
            for answer in answers:
                choice = self._choice(job, i)
                fields = {"index": len(choices), **choice.render(answer)}
                fields |= finish_fields(answer.finish)
                if job.body.return_token_ids:
                    fields["prompt_token_ids"] = done.stream.prompts[i]
                choices.append(fields)
        header = job.header.fields(_OBJECT)
        return {**header, "choices": choices, "usage": usage(done.answers, job.n)}

    async def stream(
        self, stream: AnswerStream, job: Job[CompletionRequest]
    ) -> AsyncGenerator[bytes, None]:
        """Chunks of text, and one with the finish for each choice."""
        header = job.header.fields(_OBJECT)
        none: dict[str, Any] = {"usage": None} if job.include_usage else {}
        choices = [self._choice(job, index // job.n) for index in range(len(stream.rids))]
        counts = Counts(len(choices), job.n)
        try:
            async for index, delta in stream:
                raise_for_error(delta)
                counts.note(index, delta)
                tail = {"usage": counts.usage()} if job.continuous_usage else none
                choice = choices[index]
                with_prompt = job.body.return_token_ids and choice.is_new
                fields = {"index": index, **choice.render(delta), "finish_reason": None}
                if with_prompt:
                    fields["prompt_token_ids"] = stream.prompts[index // job.n]
                if fields["text"] or delta.ids or with_prompt:
                    yield frame({**header, "choices": [fields], **tail})
                if delta.finish is not None:
                    fields = {"index": index, "text": "", "logprobs": None}
                    fields |= finish_fields(delta.finish)
                    yield frame({**header, "choices": [fields], **tail})
            if job.include_usage:
                yield frame({**header, "choices": [], "usage": counts.usage()})
            yield DONE
        finally:
            await stream.aclose()

    def _choice(self, job: Job[CompletionRequest], number: int) -> "_Choice":
        """A new choice for a prompt."""
        skips = job.requests[0].params.skip_special_tokens
        hidden = self.client.tokenizer.special_ids if skips else frozenset()
        writer = None if not _wants_logprobs(job.body) else CompletionLogprobs(hidden)
        return _Choice(job.echo[number], writer, bool(job.body.return_token_ids))


class _Choice:
    """One choice while it comes.

    Args:
        prompt: Echoed before the first text.
        logprobs: Renders its log-probabilities; None when none are wanted.
        with_ids: Token ids are wanted.

    Attributes:
        is_new: Nothing has been rendered yet.
    """

    def __init__(self, prompt: str, logprobs: CompletionLogprobs | None, with_ids: bool) -> None:
        self._prompt = prompt
        self._logprobs = logprobs
        self._with_ids = with_ids
        self.is_new = True

    def render(self, part: Answer | TextDelta) -> dict[str, Any]:
        """Text, log-probabilities and ids of a delta, or of a whole answer."""
        text, self._prompt, self.is_new = self._prompt + part.text, "", False
        fields: dict[str, Any] = {"text": text, "logprobs": None}
        if self._logprobs is not None:
            records = [*(part.input_logprobs or ()), *visible_logprobs(part)]
            fields["logprobs"] = self._logprobs.render(records, text)
        if self._with_ids:
            fields["token_ids"] = part.ids
        return fields


def _prompts(prompt: Any) -> list[str | list[int]]:
    """Prompts as texts or lists of ids; a flat list of ids is one prompt."""
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


def _prompt_param(index: int, count: int) -> str:
    """A prompt's field, for errors."""
    return "prompt" if count == 1 else f"prompt[{index}]"


def _num_made(body: CompletionRequest) -> int:
    """How many answers `best_of` makes."""
    made, kept = body.best_of or 0, body.n or 1
    if not kept <= made <= MAX_N:
        raise InvalidRequest(f"best_of must be in [n, {MAX_N}], got {made}", param="best_of")
    if body.stream and made > kept:
        raise InvalidRequest(
            "best_of greater than n cannot be streamed: the best is known at the end",
            param="best_of",
        )
    return made


def _best(answers: list[Answer], body: CompletionRequest) -> list[Answer]:
    """The `n` answers with the highest mean log-probability, best first."""
    kept = body.n or 1
    if len(answers) <= kept:
        return answers

    def mean(answer: Answer) -> float:
        values = [record.token.logprob or 0.0 for record in answer.output_logprobs or ()]
        return sum(values) / len(values) if values else 0.0

    return sorted(answers, key=mean, reverse=True)[:kept]


def _wants_logprobs(body: CompletionRequest) -> bool:
    return body.logprobs is not None and body.logprobs is not False


def _logprob_spec(body: CompletionRequest) -> LogprobSpec | None:
    """What the worker reports; `best_of` needs it even when the client does not."""
    if not _wants_logprobs(body):
        is_chosen = body.best_of is not None and body.best_of > (body.n or 1)
        return LogprobSpec() if is_chosen else None
    top = 0 if body.logprobs is True else int(body.logprobs or 0)
    if not 0 <= top <= MAX_LOGPROBS:
        raise InvalidRequest(
            f"logprobs must be in [0, {MAX_LOGPROBS}], got {top}", param="logprobs"
        )
    return LogprobSpec(start_len=0 if body.echo else -1, top_num=top, with_text=True)
