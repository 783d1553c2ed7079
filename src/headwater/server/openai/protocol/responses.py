"""`/v1/responses`: request, answer and events."""

from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from headwater.server.openai.protocol.base import RequestModel, ResponseModel, optional
from headwater.server.openai.protocol.sampling import BOUNDED, GenerationRequest

__all__ = ["ResponseEvent", "ResponseObject", "ResponsesRequest"]


class Reasoning(RequestModel):
    """How to reason."""

    effort: str | None = optional("given to the chat template as `reasoning_effort`")


class TextOptions(RequestModel):
    """The form of the text."""

    format: dict[str, Any] | None = optional('`{"type": "text"}` and no other yet')


class ResponsesRequest(GenerationRequest):
    """Input to be answered. Nothing is stored: every request carries its whole history."""

    # Checked by `response_items`, whose errors name the item.
    input: SkipValidation[str | list[dict[str, Any]]] = Field(
        description="a text, or messages, calls of tools and their outputs",
        examples=["Name three rivers."],
    )
    instructions: str | None = optional("system message before the input")
    max_output_tokens: int | None = optional("most tokens of the answer", examples=[64])
    include: Annotated[list[str], BOUNDED] | None = optional(
        "`message.output_text.logprobs` adds log-probabilities"
    )
    top_logprobs: int | None = optional("most likely alternatives at each place, up to 20")
    reasoning: Reasoning | None = optional("how to reason")
    text: TextOptions | None = optional("the form of the text")
    truncation: Literal["disabled"] | None = optional("`disabled`: too long an input is an error")
    parallel_tool_calls: bool | None = optional("accepted, not used")
    max_tool_calls: int | None = optional("accepted, not used")
    prompt_cache_key: str | None = optional("accepted, not used: every prompt is cached")
    safety_identifier: str | None = optional("accepted, not used")
    chat_template_kwargs: dict[str, Any] | None = optional("more variables for the template")


class OutputText(ResponseModel):
    """The answer's text."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[dict[str, Any]]


class OutputMessage(ResponseModel):
    """The answer."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputText]


class InputTokensDetails(ResponseModel):
    """Of the input's tokens."""

    cached_tokens: int


class OutputTokensDetails(ResponseModel):
    """Of the output's tokens."""

    reasoning_tokens: int


class ResponseUsage(ResponseModel):
    """Token counts."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseObject(ResponseModel):
    """The answer to an input."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete"]
    background: Literal[False]
    error: None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, Any]
    model: str
    output: list[OutputMessage]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, Any]
    service_tier: str | None
    store: Literal[False]
    temperature: float
    text: dict[str, Any]
    tool_choice: Literal["auto"]
    tools: list[Any]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: str | None


class ResponseEvent(RequestModel):
    """An event of a stream; further fields depend on its type."""

    type: str
    sequence_number: int
