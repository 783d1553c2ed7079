"""What chat and text completions share in their answers: names, usage, finish."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.frontend.client import Client
from headwater.frontend.requests import Answer
from headwater.messages.text import TextDelta, TokenLogprobs
from headwater.messages.tokens import Finish

__all__ = ["Counts", "Header", "finish_fields", "usage", "visible_logprobs"]


class Header:
    """The fields that all objects of one answer share.

    Attributes:
        id: Its id.
    """

    def __init__(self, prefix: str, rid: str | None, model: str, client: Client) -> None:
        self.id = rid if rid is not None else f"{prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model
        self._fingerprint = client.fingerprint

    def fields(self, kind: str) -> dict[str, Any]:
        """As JSON fields; `kind` is the object's name."""
        return {
            "id": self.id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": self._fingerprint,
        }


def usage(answers: Sequence[Answer], n: int) -> dict[str, Any]:
    """Token counts of all answers; each prompt counts once, whatever `n` is."""
    prompt = sum(answer.prompt_tokens for answer in answers[::n])
    completion = sum(answer.completion_tokens for answer in answers)
    # Siblings find the prompt that the first of them has just computed; that is no hit.
    groups = [answers[i : i + n] for i in range(0, len(answers), n)]
    cached = sum(min(answer.cached_tokens for answer in group) for group in groups)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


class Counts:
    """Token counts while answers come.

    Args:
        num_answers: How many will come.
        n: How many of them belong to one prompt.
    """

    def __init__(self, num_answers: int, n: int) -> None:
        self._answers = [Answer() for _ in range(num_answers)]
        self._n = n

    def note(self, index: int, delta: TextDelta) -> None:
        """A delta has come."""
        answer = self._answers[index]
        answer.prompt_tokens, answer.cached_tokens = delta.prompt_tokens, delta.cached_tokens
        answer.completion_tokens = delta.completion_tokens

    def usage(self) -> dict[str, Any]:
        """The counts so far."""
        return usage(self._answers, self._n)


def finish_fields(finish: Finish | None) -> Mapping[str, Any]:
    """`finish_reason` and `matched_stop`."""
    if finish is None:
        return {"finish_reason": None}
    return {"finish_reason": finish.type, "matched_stop": finish.matched}


def visible_logprobs(answer: Answer | TextDelta) -> list[TokenLogprobs]:
    """Records of the tokens that the text shows; a trimmed stop has none."""
    records = answer.output_logprobs or []
    return records[: len(records) - answer.trimmed_ids] if answer.trimmed_ids else records
