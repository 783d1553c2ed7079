"""A `/generate` body to native requests; every wrong field is named."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from headwater.errors import InvalidRequest, NotSupported
from headwater.frontend.client import Client
from headwater.frontend.requests import GenerateRequest
from headwater.messages.requests import MAX_LOGPROBS, LogprobSpec
from headwater.server.body import Fields, check_ids, check_integer, check_rid

__all__ = ["MAX_BATCH", "NativeRequest", "translate"]

MAX_BATCH = 1024

# Known to SGLang's clients, and not to be ignored silently when set.
_NOT_SUPPORTED = (
    "image_data",
    "video_data",
    "audio_data",
    "input_embeds",
    "session_params",
    "lora_path",
    "custom_logit_processor",
    "return_hidden_states",
    "return_routed_experts",
    "return_sampling_mask",
    "return_flat_raw_top_logprobs",
    "return_flat_raw_output_top_logprobs",
    "return_entropy",
    "watermark",
    "require_reasoning",
    "max_thinking_tokens",
)

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class NativeRequest:
    """A translated body.

    Attributes:
        requests: One for each prompt.
        is_list: The answer is a list: several prompts, or several answers.
        stream: Send events.
        incremental: Events hold new text only.
        with_prompt_ids: Return the prompts' ids.
    """

    requests: list[GenerateRequest]
    is_list: bool
    stream: bool
    incremental: bool
    with_prompt_ids: bool


def translate(body: Fields, client: Client) -> NativeRequest:
    """Check a body.

    Raises:
        InvalidRequest: A field is wrong; `param` names it.
        NotSupported: A field is set that is not supported yet.
    """
    for name in _NOT_SUPPORTED:
        if body.get(name) not in (None, False, "", [], {}):
            raise NotSupported(f"{name} is not supported yet", param=name)
    prompts, is_batch, prompt_param = _prompts(body)
    count = len(prompts)
    stream = body.flag("stream")
    rids = _rids(body, count, is_batch)
    params = _sampling_params(body, count, is_batch)
    logprobs = _logprob_specs(body, count, is_batch)
    salt = body.text("cache_salt") or body.text("extra_key") or ""
    requests = []
    for i, prompt in enumerate(prompts):
        where = f"sampling_params[{i}]" if isinstance(params, list) else "sampling_params"
        values = params[i] if isinstance(params, list) else params
        requests.append(
            GenerateRequest(
                params=client.params(values, param=where),
                text=prompt if isinstance(prompt, str) else None,
                input_ids=prompt if isinstance(prompt, list) else None,
                rid=rids[i],
                logprobs=logprobs[i],
                stream=stream,
                cache_salt=salt,
                prompt_param=f"{prompt_param}[{i}]" if is_batch else prompt_param,
                max_new_tokens_param=f"{where}.max_new_tokens",
                is_max_new_tokens_explicit=values.get("max_new_tokens") is not None,
            )
        )
    is_list = is_batch or any(r.params.n > 1 for r in requests)
    if len({r.params.n for r in requests}) > 1:
        raise InvalidRequest("all sampling_params of a batch must agree on n", param="n")
    incremental = client.config.stream.incremental_streaming_output
    return NativeRequest(
        requests,
        is_list,
        stream,
        body.flag("incremental", incremental),
        body.flag("return_prompt_token_ids"),
    )


def _prompts(body: Fields) -> tuple[list[Any], bool, str]:
    """The prompts, whether they came as a batch, and the field they came in."""
    text, ids = body.get("text"), body.get("input_ids")
    if (text is None) == (ids is None):
        raise InvalidRequest("give exactly one of text and input_ids", param="text")
    if text is not None:
        if isinstance(text, str):
            return [text], False, "text"
        return _batch(text, "text", _check_text), True, "text"
    if isinstance(ids, list) and ids and isinstance(ids[0], list):
        return _batch(ids, "input_ids", check_ids), True, "input_ids"
    return [check_ids(ids, "input_ids")], False, "input_ids"


def _batch(values: Any, name: str, check: Callable[[Any, str], T]) -> list[T]:
    if not isinstance(values, list) or not values:
        raise InvalidRequest(f"{name} must be a string or a non-empty list", param=name)
    if len(values) > MAX_BATCH:
        raise InvalidRequest(f"{name} may hold {MAX_BATCH} prompts, got {len(values)}", param=name)
    return [check(value, f"{name}[{i}]") for i, value in enumerate(values)]


def _check_text(value: Any, param: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{param} must be a string", param=param)
    return value


def _rids(body: Fields, count: int, is_batch: bool) -> list[str | None]:
    rid = body.get("rid")
    if rid is None:
        return [None] * count
    if isinstance(rid, str):
        check_rid(rid, "rid")
        return [f"{rid}_{i}" for i in range(count)] if is_batch else [rid]
    if not isinstance(rid, list) or not is_batch or len(rid) != count:
        raise InvalidRequest("rid must be a string, or a list as long as the batch", param="rid")
    return [check_rid(item, f"rid[{i}]") for i, item in enumerate(rid)]


def _sampling_params(
    body: Fields, count: int, is_batch: bool
) -> dict[str, Any] | list[dict[str, Any]]:
    name = "sampling_params"
    value = body.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    if not isinstance(value, list) or not is_batch or len(value) != count:
        raise InvalidRequest(
            f"{name} must be an object, or a list as long as the batch", param=name
        )
    for i, item in enumerate(value):
        if not isinstance(item, dict):
            raise InvalidRequest(f"{name}[{i}] must be an object", param=f"{name}[{i}]")
    return value


def _logprob_specs(body: Fields, count: int, is_batch: bool) -> list[LogprobSpec | None]:
    def each(name: str, default: T, check: Callable[[Any, str], T]) -> list[T]:
        """One value for each prompt; a list gives each its own."""
        value = body.get(name)
        if value is None:
            return [default] * count
        if not isinstance(value, list):
            return [check(value, name)] * count
        if not is_batch or len(value) != count:
            raise InvalidRequest(f"the list {name} must be as long as the batch", param=name)
        return [check(item, f"{name}[{i}]") for i, item in enumerate(value)]

    def top(value: Any, param: str) -> int:
        return check_integer(value, param, high=MAX_LOGPROBS)

    def start(value: Any, param: str) -> int:
        return check_integer(value, param, low=-1)

    wanted = each("return_logprob", False, _check_flag)
    starts = each("logprob_start_len", -1, start)
    tops = each("top_logprobs_num", 0, top)
    ids = _token_ids_logprob(body, count, is_batch)
    with_text = body.flag("return_text_in_logprobs")
    return [
        LogprobSpec(starts[i], tops[i], ids[i], with_text) if wanted[i] else None
        for i in range(count)
    ]


def _check_flag(value: Any, param: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{param} must be true or false", param=param)
    return value


def _token_ids_logprob(body: Fields, count: int, is_batch: bool) -> list[list[int]]:
    name = "token_ids_logprob"
    value = body.get(name)
    if value is None:
        return [[]] * count
    if isinstance(value, list) and value and isinstance(value[0], list):
        if not is_batch or len(value) != count:
            raise InvalidRequest(f"the list {name} must be as long as the batch", param=name)
        return [check_ids(item, f"{name}[{i}]") for i, item in enumerate(value)]
    return [check_ids(value, name)] * count
