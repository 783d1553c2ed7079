"""`/v1/completions`: request and answer (chunks are answers with what is new)."""

from typing import Literal

from pydantic import Field, SkipValidation

from headwater.server.openai.protocol.base import ResponseModel, optional
from headwater.server.openai.protocol.sampling import GenerationRequest
from headwater.server.openai.protocol.usage import Usage

__all__ = ["Completion", "CompletionRequest"]


class CompletionRequest(GenerationRequest):
    """Prompts to be continued."""

    # Checked by the endpoint, without trying each type on long lists of ids.
    prompt: SkipValidation[str | list[str] | list[int] | list[list[int]]] = Field(
        description="a text, token ids, or a list of either",
        examples=["The capital of France is"],
    )
    suffix: str | None = optional("what comes after the answer, for models that fill in the middle")
    echo: bool | None = optional("put the prompt before the answer")
    logprobs: int | bool | None = optional("most likely alternatives at each place, up to 20")
    best_of: int | None = optional("answers to make, of which the n most likely are returned")
    add_special_tokens: bool | None = optional("let the tokenizer add its own (BOS); default true")


class CompletionLogprobs(ResponseModel):
    r"""Log-probabilities, token by token.

    The tokens, joined, are the choice's text; a token that is a piece of a character is shown as
    `bytes:\x..`, and special tokens that the text leaves out take no room in it.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(ResponseModel):
    """One answer."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    matched_stop: int | str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class Completion(ResponseModel):
    """The answers to all prompts: answer k to prompt i has index i * n + k."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
