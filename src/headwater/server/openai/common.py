"""What chat and text completions share: parameters, usage, finish, names."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.errors import InvalidRequest, ModelNotFound, NotSupported
from headwater.frontend.client import Client
from headwater.frontend.requests import Answer
from headwater.messages.params import SamplingParams
from headwater.messages.text import TextDelta, TokenLogprobs
from headwater.messages.tokens import Finish
from headwater.server.body import Fields

__all__ = [
    "Header",
    "StreamOptions",
    "check_model",
    "finish_fields",
    "refuse_unsupported",
    "sampling_params",
    "usage",
    "visible_logprobs",
]

# OpenAI's (and the extensions') names of native parameters, where they differ.
_RENAMED = {
    "seed": "sampling_seed",
    "min_tokens": "min_new_tokens",
    "include_stop_str_in_output": "no_stop_trim",
}
_SAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "no_stop_trim",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "logit_bias",
    "n",
    "stream_interval",
)
# Grammars, which native parameters refuse by name.
_GRAMMAR = ("regex", "ebnf", "json_schema", "structured_outputs", "guided_json", "guided_regex")


def check_model(body: Fields, client: Client) -> str:
    """The name that the answer shows.

    Raises:
        ModelNotFound: The request names a model that is not served.
    """
    name = body.text("model")
    if name is None or name == "default":
        return client.model_name
    if name not in client.model_names:
        raise ModelNotFound(f"the model {name!r} does not exist here", param="model")
    return name


def refuse_unsupported(body: Fields, names: Sequence[str]) -> None:
    """Refuse fields that must not be ignored silently.

    Raises:
        NotSupported: One of them is set.
    """
    for name in (*names, *_GRAMMAR):
        if body.get(name) not in (None, False, "", [], {}):
            raise NotSupported(f"{name} is not supported yet", param=name)
    response_format = body.get("response_format")
    if response_format is not None:
        kind = response_format.get("type") if isinstance(response_format, dict) else None
        if kind != "text":
            raise NotSupported(
                f"response_format of type {kind!r} is not supported yet", param="response_format"
            )


def sampling_params(
    body: Fields, client: Client, *, max_tokens: int | None, max_tokens_name: str
) -> SamplingParams:
    """Translate sampling fields.

    Args:
        body: The request.
        client: The engine.
        max_tokens: Length of the answer; None is the rest of the context.
        max_tokens_name: The field it came in, for errors.

    Raises:
        InvalidRequest: A field is wrong; `param` is OpenAI's name of it.
    """
    values = {name: body.get(name) for name in _SAME if body.get(name) is not None}
    for theirs, ours in _RENAMED.items():
        if body.get(theirs) is not None:
            values[ours] = body.get(theirs)
    values["max_new_tokens"] = max_tokens
    try:
        return client.params(values)
    except InvalidRequest as err:
        back = {ours: theirs for theirs, ours in _RENAMED.items() if body.get(theirs) is not None}
        back["max_new_tokens"] = max_tokens_name
        ours = (err.param or "").removeprefix("sampling_params.")
        name = back.get(ours, ours)
        raise type(err)(
            err.message.replace(ours, name) if ours else err.message, param=name
        ) from None


class StreamOptions:
    """`stream` and `stream_options`.

    Attributes:
        stream: Send events.
        include_usage: Send a usage chunk at the end.
        continuous_usage: Send usage in every chunk.
    """

    def __init__(self, body: Fields) -> None:
        self.stream = body.flag("stream")
        options = body.get("stream_options")
        self.include_usage = self.continuous_usage = False
        if options is None:
            return
        if not isinstance(options, dict):
            raise InvalidRequest("stream_options must be an object", param="stream_options")
        if not self.stream:
            raise InvalidRequest("stream_options needs stream: true", param="stream_options")
        for name in ("include_usage", "continuous_usage_stats"):
            if not isinstance(options.get(name) or False, bool):
                raise InvalidRequest(
                    f"{name} must be true or false", param=f"stream_options.{name}"
                )
        self.include_usage = bool(options.get("include_usage"))
        self.continuous_usage = bool(options.get("continuous_usage_stats"))


class Header:
    """The fields that all objects of one answer share.

    Attributes:
        id: Its id.
        created: Unix time.
        model: Name of the model.
    """

    def __init__(self, prefix: str, rid: str | None, model: str) -> None:
        self.id = rid if rid is not None else f"{prefix}-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.model = model

    def fields(self, kind: str) -> dict[str, Any]:
        """As JSON fields; `kind` is the object's name."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def usage(answers: Sequence[Answer | TextDelta], n: int) -> dict[str, Any]:
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
    }


def finish_fields(finish: Finish | None) -> Mapping[str, Any]:
    """`finish_reason` and `matched_stop`."""
    if finish is None:
        return {"finish_reason": None}
    return {"finish_reason": finish.type, "matched_stop": finish.matched}


def visible_logprobs(answer: Answer | TextDelta) -> list[TokenLogprobs]:
    """Records of the tokens that the text shows; a trimmed stop has none."""
    records = answer.output_logprobs or []
    return records[: len(records) - answer.trimmed_ids] if answer.trimmed_ids else records
