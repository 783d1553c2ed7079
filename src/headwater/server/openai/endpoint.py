"""The way of every generating endpoint: validate, convert, run, then respond or stream.

It only translates: the request into native ones, native answers into OpenAI's objects.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from fastapi import Request
from fastapi.responses import Response

from headwater.errors import InvalidRequest, ModelNotFound, NotSupported
from headwater.frontend.client import ChatPrompt, Client
from headwater.frontend.requests import GenerateRequest
from headwater.frontend.streams import AnswerStream
from headwater.messages.params import SamplingParams
from headwater.messages.requests import LogprobSpec
from headwater.server.answer import Finished, collect, json_response
from headwater.server.body import Fields, check_rid
from headwater.server.openai.protocol.sampling import GenerationRequest
from headwater.server.openai.render import Header
from headwater.server.sse import EventStream

__all__ = ["Job", "OpenAIEndpoint", "check_max_tokens"]

BodyT = TypeVar("BodyT", bound=GenerationRequest)


@dataclass(slots=True, frozen=True)
class Job(Generic[BodyT]):
    """A converted request.

    Attributes:
        body: What the client sent.
        header: What all objects of the answer share.
        requests: One for each prompt; all make the same number of answers.
        echo: Text to put before the answers, one for each prompt; empty when not asked for.
    """

    body: BodyT
    header: Header
    requests: list[GenerateRequest]
    echo: list[str]

    @property
    def n(self) -> int:
        """Answers that are made to each prompt."""
        return self.requests[0].params.n

    @property
    def include_usage(self) -> bool:
        """A stream ends with a chunk of token counts."""
        options = self.body.stream_options
        return options is not None and bool(options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        """Every chunk of a stream has token counts."""
        options = self.body.stream_options
        return options is not None and bool(options.continuous_usage_stats)


class OpenAIEndpoint(ABC, Generic[BodyT]):
    """One endpoint over a client of the runtime.

    Args:
        client: The running engine.

    Attributes:
        body_type: The request's model.
        id_prefix: Beginning of drawn ids.
        not_supported: Fields that must not be ignored silently.
    """

    body_type: type[BodyT]
    id_prefix: ClassVar[str]
    not_supported: ClassVar[tuple[str, ...]] = ()

    # Of both endpoints: what would change the answer, and is not there yet.
    _NOT_SUPPORTED: ClassVar[tuple[str, ...]] = (
        "regex",
        "ebnf",
        "json_schema",
        "structured_outputs",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "lora_path",
        "logit_processors",
        "custom_logit_processor",
        "use_beam_search",
        "allowed_token_ids",
        "bad_words",
        "prompt_logprobs",
        "truncate_prompt_tokens",
        "priority",
    )

    def __init__(self, client: Client) -> None:
        self.client = client

    async def handle(self, request: Request, fields: Fields) -> Response:
        """Answer a request.

        Raises:
            HeadwaterError: It is wrong, or cannot be answered.
        """
        job = await self.convert(self.validate(fields.values))
        headers = {"x-request-id": job.header.id}
        if job.body.stream:
            stream = await self.client.submit(job.requests)
            interval_s = self.client.config.server.sse_ping_interval_s
            return EventStream(self.stream(stream, job), headers, ping_interval_s=interval_s)
        done = await collect(request, self.client, job.requests)
        return json_response(self.respond(done, job), headers=headers)

    def validate(self, values: Mapping[str, Any]) -> BodyT:
        """Check types, and refuse what is not supported.

        Raises:
            InvalidRequest: A field is wrong; `param` names it.
            ModelNotFound: It names a model that is not served.
        """
        body = self.body_type.read(values)
        self._model_name(body)
        if body.rid is not None:
            check_rid(body.rid, "rid")
        for name in (*self.not_supported, *self._NOT_SUPPORTED):
            if values.get(name) not in (None, False, "", [], {}):
                raise NotSupported(f"{name} is not supported yet", param=name)
        _check_response_format(values.get("response_format"))
        if body.stream_options is not None and not body.stream:
            raise InvalidRequest("stream_options needs stream: true", param="stream_options")
        return body

    @abstractmethod
    async def convert(self, body: BodyT) -> Job[BodyT]:
        """The native requests of a checked body.

        Raises:
            InvalidRequest: A field is wrong; `param` names it.
        """

    @abstractmethod
    def respond(self, done: Finished, job: Job[BodyT]) -> dict[str, Any]:
        """The whole answer."""

    @abstractmethod
    def stream(self, stream: AnswerStream, job: Job[BodyT]) -> AsyncGenerator[bytes, None]:
        """The answer as events."""

    def header(self, body: BodyT) -> Header:
        """A new answer's header."""
        return Header(self.id_prefix, body.rid, self._model_name(body), self.client)

    def params(self, body: BodyT, *, max_tokens_field: str, **native: Any) -> SamplingParams:
        """Native sampling parameters.

        Args:
            body: The request.
            max_tokens_field: The field that `max_new_tokens` came in, for errors.
            native: Parameters that go before the body's.

        Raises:
            InvalidRequest: A field is wrong; `param` is OpenAI's name of it.
        """
        values = {**body.sampling_values(), **native}
        try:
            return self.client.params(values)
        except InvalidRequest as err:
            names = {
                ours: theirs
                for theirs, ours in body.renamed.items()
                if getattr(body, theirs) is not None
            }
            names["max_new_tokens"] = max_tokens_field
            ours = (err.param or "").removeprefix("sampling_params.")
            theirs = names.get(ours, ours)
            text = err.message.replace(ours, theirs) if ours else err.message
            raise type(err)(text, param=theirs) from None

    def chat_request(
        self,
        body: BodyT,
        prompt: ChatPrompt,
        *,
        max_tokens_field: str,
        max_tokens: int | None,
        logprobs: LogprobSpec | None,
        prompt_param: str,
    ) -> GenerateRequest:
        """The native request of an encoded conversation, whose format may add stop strings.

        Args:
            body: The request.
            prompt: Its conversation.
            max_tokens_field: The field that `max_tokens` came in, for errors.
            max_tokens: Most tokens of an answer; None for all that fit.
            logprobs: What the worker reports.
            prompt_param: The field that the conversation came in, for errors.

        Raises:
            InvalidRequest: A field is wrong; `param` is OpenAI's name of it.
        """
        return GenerateRequest(
            params=self.params(
                body,
                max_tokens_field=max_tokens_field,
                max_new_tokens=max_tokens,
                **body.stops_with(prompt.stop),
            ),
            input_ids=prompt.ids,
            rid=body.rid,
            logprobs=logprobs,
            stream=bool(body.stream),
            cache_salt=body.cache_salt or "",
            prompt_param=prompt_param,
            max_new_tokens_param=max_tokens_field,
            is_max_new_tokens_explicit=max_tokens is not None,
        )

    def _model_name(self, body: BodyT) -> str:
        """The name that the answer shows."""
        if body.model is None or body.model == "default":
            return self.client.model_name
        if body.model not in self.client.model_names:
            raise ModelNotFound(f"the model {body.model!r:.200} does not exist here", param="model")
        return body.model


def check_max_tokens(value: int | None, param: str) -> None:
    """A conversation's answer has at least one token.

    Raises:
        InvalidRequest: It may have none.
    """
    if value is not None and value < 1:
        raise InvalidRequest(f"{param} must be >= 1, got {value}", param=param)


def _check_response_format(value: Any) -> None:
    if value is None:
        return
    kind = value.get("type") if isinstance(value, dict) else None
    if kind != "text":
        raise NotSupported(
            f"response_format of type {kind!r} is not supported yet", param="response_format"
        )
