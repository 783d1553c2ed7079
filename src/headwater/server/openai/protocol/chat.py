"""`/v1/chat/completions`: request, answer and chunk."""

from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from headwater.server.openai.protocol.base import RequestModel, ResponseModel, optional
from headwater.server.openai.protocol.sampling import BOUNDED, GenerationRequest
from headwater.server.openai.protocol.usage import Usage

__all__ = ["ChatCompletion", "ChatCompletionChunk", "ChatMessage", "ChatRequest"]


class ContentPart(RequestModel):
    """A part of a message."""

    type: Literal["text"]
    text: str


class ChatMessage(RequestModel):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = optional("text, or parts of it")
    name: str | None = optional("name of the speaker, for templates that show it")
    tool_calls: list[dict[str, Any]] | None = optional("calls that the assistant made")
    tool_call_id: str | None = optional("the call that a tool's message answers")


class ChatRequest(GenerationRequest):
    """A conversation to be continued."""

    # Checked by `prompt.chat`, whose errors name the message.
    messages: SkipValidation[list[ChatMessage]] = Field(
        description="the conversation so far",
        examples=[[{"role": "user", "content": "Name three rivers."}]],
    )
    max_completion_tokens: int | None = optional("most tokens of an answer; before max_tokens")
    logprobs: bool | None = optional("return log-probabilities of the answer's tokens")
    top_logprobs: int | None = optional("most likely alternatives at each place, up to 20")
    reasoning_effort: str | None = optional("given to the chat template")

    # Extensions.
    add_generation_prompt: bool | None = optional("end the prompt with the assistant's opening")
    continue_final_message: bool | None = optional("leave the last message open and go on in it")
    echo: bool | None = optional("put the message that is continued before the answer")
    chat_template: str | None = optional("Jinja template, where the server allows it")
    chat_template_kwargs: dict[str, Any] | None = optional("more variables for the template")
    documents: Annotated[list[dict[str, Any]], BOUNDED] | None = optional(
        "documents, for templates that show them"
    )


class TokenLogprob(ResponseModel):
    """A token and its log-probability."""

    token: str
    logprob: float | None
    bytes: list[int] | None


class ContentLogprob(TokenLogprob):
    """A token of the answer, with alternatives."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(ResponseModel):
    """Log-probabilities of the tokens that the content shows."""

    content: list[ContentLogprob] | None
    refusal: None


class AssistantMessage(ResponseModel):
    """The answer."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(ResponseModel):
    """One answer."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    matched_stop: int | str | None
    token_ids: list[int] | None = None


class ChatCompletion(ResponseModel):
    """The answers to a conversation."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | None = None


class Delta(ResponseModel):
    """What is new."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(ResponseModel):
    """What is new of one answer."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    matched_stop: int | str | None = None
    token_ids: list[int] | None = None


class ChatCompletionChunk(ResponseModel):
    """An event of a stream; the last, with the usage, has no choices."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None
