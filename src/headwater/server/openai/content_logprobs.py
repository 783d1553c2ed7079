"""Log-probabilities in the form of chat completions and responses: a list of tokens with bytes."""

from collections.abc import Sequence
from typing import Any

from headwater.errors import InvalidRequest
from headwater.messages.requests import LogprobSpec
from headwater.messages.text import TokenLogprob, TokenLogprobs

__all__ = ["content_logprobs", "top_logprob_spec"]

MAX_TOP_LOGPROBS = 20


def top_logprob_spec(top: int) -> LogprobSpec:
    """What the worker reports for `top_logprobs`.

    Raises:
        InvalidRequest: There are too many.
    """
    if not 0 <= top <= MAX_TOP_LOGPROBS:
        raise InvalidRequest(
            f"top_logprobs must be in [0, {MAX_TOP_LOGPROBS}], got {top}", param="top_logprobs"
        )
    return LogprobSpec(top_num=top, with_text=True)


def content_logprobs(records: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
    """One entry for each token, with its alternatives."""
    return [
        {**_entry(record.token), "top_logprobs": [_entry(token) for token in record.top or ()]}
        for record in records
    ]


def _entry(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.logprob, "bytes": list(token.raw or b"")}
