"""Results in the native shape, shared by `/generate` and the offline engine.

Names and meaning are SGLang's (`text`, `output_ids`, `meta_info`). It knows answers, no HTTP.
"""

import time
from collections.abc import Sequence
from typing import Any

from headwater.errors import error_from_code
from headwater.frontend.requests import Answer
from headwater.messages.text import TextDelta, TokenLogprob, TokenLogprobs
from headwater.messages.tokens import Finish

__all__ = ["WEIGHT_VERSION", "finish_reason", "native_result", "raise_for_error"]

WEIGHT_VERSION = "default"


def finish_reason(finish: Finish | None) -> dict[str, Any] | None:
    """Why an answer ended, as a JSON object; None while it runs."""
    if finish is None:
        return None
    match finish.type:
        case "stop":
            return {"type": "stop", "matched": finish.matched}
        case "length":
            return {"type": "length", "length": finish.length}
        case _:
            return {"type": finish.type, "message": finish.message}


def raise_for_error(delta: TextDelta) -> None:
    """Raise what went wrong with this answer, if something did.

    Raises:
        HeadwaterError: The answer ended with an error.
    """
    if delta.finish is not None and delta.finish.type == "error":
        finish = delta.finish
        raise error_from_code(finish.code or "internal_error", finish.message or "", finish.param)


def native_result(
    answer: Answer,
    *,
    rid: str,
    started_at: float,
    index: int | None = None,
    prompt_ids: Sequence[int] | None = None,
    with_logprobs: bool = False,
) -> dict[str, Any]:
    """One answer, or what there is of it, as a JSON object.

    Args:
        answer: The fold of its deltas.
        rid: Its name.
        started_at: `time.monotonic()` when the request came.
        index: Its index in the batch; None for a single answer.
        prompt_ids: Returned as `prompt_token_ids`.
        with_logprobs: Report log-probabilities.
    """
    meta: dict[str, Any] = {
        "id": rid,
        "finish_reason": finish_reason(answer.finish),
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "cached_tokens": answer.cached_tokens,
        "num_retractions": answer.num_retractions,
        "weight_version": WEIGHT_VERSION,
    }
    if answer.finish is not None:
        meta["e2e_latency"] = time.monotonic() - started_at
    if with_logprobs:
        _add_logprobs(meta, "input", answer.input_logprobs or [])
        _add_logprobs(meta, "output", answer.output_logprobs or [])
        meta["output_token_logprobs_length"] = len(answer.output_logprobs or [])
    result: dict[str, Any] = {"text": answer.text, "output_ids": answer.ids, "meta_info": meta}
    if index is not None:
        result["index"] = index
    if prompt_ids is not None:
        result["prompt_token_ids"] = list(prompt_ids)
    return result


def _add_logprobs(meta: dict[str, Any], side: str, positions: Sequence[TokenLogprobs]) -> None:
    meta[f"{side}_token_logprobs"] = [_triple(p.token) for p in positions]
    # Alternatives and picked ids are there only when they were asked for.
    if any(p.top for p in positions):
        meta[f"{side}_top_logprobs"] = [_triples(p.top) for p in positions]
    if any(p.picked for p in positions):
        meta[f"{side}_token_ids_logprobs"] = [_triples(p.picked) for p in positions]


def _triple(token: TokenLogprob) -> list[Any]:
    return [token.logprob, token.id, token.text]


def _triples(tokens: Sequence[TokenLogprob] | None) -> list[list[Any]] | None:
    return None if tokens is None else [_triple(token) for token in tokens]
