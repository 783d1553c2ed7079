"""Token counts."""

from headwater.server.openai.protocol.base import ResponseModel

__all__ = ["Usage"]


class PromptTokensDetails(ResponseModel):
    """Of the prompt's tokens."""

    cached_tokens: int


class CompletionTokensDetails(ResponseModel):
    """Of the answers' tokens."""

    reasoning_tokens: int


class Usage(ResponseModel):
    """Token counts of all answers; each prompt counts once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails
