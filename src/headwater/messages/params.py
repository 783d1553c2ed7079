"""Sampling parameters: every field documented, and checked here only.

Names, defaults and ranges are those of SGLang's `sampling_params`. This module knows numbers and
strings; it does not know tokenizers, models or HTTP.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from headwater.errors import InvalidRequest, NotSupported

__all__ = ["MAX_LOGIT_BIAS", "MAX_STOPS", "SamplingParams", "params_from_dict"]

MAX_STOPS = 32
MAX_STOP_LEN = 4096
MAX_STOP_REGEX_BYTES = 256
MAX_STOP_TOKEN_IDS = 256
MAX_LOGIT_BIAS = 1024
MAX_N = 128
_GREEDY_BELOW = 1e-6
_INT64 = 1 << 63
_NOT_YET = (
    "beam_width",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "choice",
    "custom_params",
    "watermark",
)


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one answer is generated. Build it with `params_from_dict`, which checks every field.

    Attributes:
        max_new_tokens: Most tokens to generate, >= 0; None means up to the end of the context.
        min_new_tokens: Tokens before any stop condition counts; end and stop tokens are masked.
        temperature: >= 0; below 1e-6 is greedy.
        top_p: Nucleus mass in (0, 1].
        top_k: Number of candidates, >= 1, or -1 for all.
        min_p: Least probability relative to the best token, in [0, 1].
        frequency_penalty: [-2, 2], times the count of the token in the answer.
        presence_penalty: [-2, 2], once if the token is in the answer.
        repetition_penalty: (0, 2], over prompt and answer.
        stop: Stop strings, matched on text.
        stop_token_ids: Token ids that end the answer.
        stop_regex: Patterns that end the answer, matched on text.
        no_stop_trim: Keep the matched stop in the text.
        ignore_eos: The model's own end tokens do not end the answer.
        skip_special_tokens: Leave special tokens out of the text.
        spaces_between_special_tokens: Put a space between adjacent special tokens in the text.
        n: Number of answers to one prompt.
        logit_bias: Token id to a number added to its logit.
        sampling_seed: Seed of the noise (64-bit); None draws one for the request.
        stream_interval: Decode steps between two messages of a stream; None is the server's.
    """

    max_new_tokens: int | None = 128
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: list[str] = []
    stop_token_ids: list[int] = []
    stop_regex: list[str] = []
    no_stop_trim: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    n: int = 1
    logit_bias: dict[int, float] = {}
    sampling_seed: int | None = None
    stream_interval: int | None = None

    @property
    def is_greedy(self) -> bool:
        """True when the most probable token is always taken."""
        return self.temperature < _GREEDY_BELOW or self.top_k == 1

    @property
    def has_text_stops(self) -> bool:
        """True when only the text can tell where the answer ends."""
        return bool(self.stop or self.stop_regex)


def params_from_dict(
    values: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    vocab_size: int | None = None,
    param: str = "sampling_params",
) -> SamplingParams:
    """Check a client's `sampling_params` and fill in defaults.

    Args:
        values: What the client sent. None as a value means "not given", except `max_new_tokens`.
        defaults: Used for absent keys (the model's generation_config).
        vocab_size: When given, token ids must lie in [0, vocab_size).
        param: Path prefix for the `param` of an error.

    Raises:
        InvalidRequest: A key is unknown, of the wrong type or out of range; `param` names it.
        NotSupported: A key that is known but not implemented was set.
    """
    for key in _NOT_YET:
        if values.get(key) not in (None, "", [], {}):
            raise NotSupported(f"{key} is not supported yet", param=f"{param}.{key}")
    merged: dict[str, Any] = dict(defaults or {})
    for key, value in values.items():
        if key in _NOT_YET or (value is None and key != "max_new_tokens"):
            continue
        merged[key] = value
    for key in ("stop", "stop_regex"):
        if isinstance(merged.get(key), str):
            merged[key] = [merged[key]]
    if isinstance(merged.get("stop_token_ids"), int):
        merged["stop_token_ids"] = [merged["stop_token_ids"]]
    known = SamplingParams.__struct_fields__
    for key in merged:
        if key not in known:
            raise InvalidRequest(
                f"unknown sampling parameter {key!r}; known are {', '.join(known)}",
                param=f"{param}.{key}",
            )
    params = _convert(merged, param)
    _check_ranges(params, param)
    _check_lists(params, vocab_size, param)
    return params


def _convert(merged: dict[str, Any], param: str) -> SamplingParams:
    """Convert types field by field, so that an error names its field."""
    types = {f.name: f.type for f in msgspec.structs.fields(SamplingParams)}
    out: dict[str, Any] = {}
    for key, value in merged.items():
        if isinstance(value, float) and value.is_integer() and types[key] in (int, int | None):
            value = int(value)
        try:
            # str_keys: JSON objects have string keys, logit_bias has token ids.
            out[key] = msgspec.convert(value, types[key], str_keys=True)
        except msgspec.ValidationError as err:
            raise InvalidRequest(f"{key}: {err}", param=f"{param}.{key}") from None
    return SamplingParams(**out)


def _require(ok: bool, key: str, rule: str, value: object, param: str) -> None:
    if not ok:
        raise InvalidRequest(f"{key} must be {rule}, got {value!r}", param=f"{param}.{key}")


def _check_ranges(p: SamplingParams, param: str) -> None:
    def need(ok: bool, key: str, rule: str) -> None:
        _require(ok, key, rule, getattr(p, key), param)

    inf = math.inf
    need(p.max_new_tokens is None or 0 <= p.max_new_tokens < _INT64, "max_new_tokens", ">= 0")
    need(0 <= p.min_new_tokens < _INT64, "min_new_tokens", ">= 0")
    if p.max_new_tokens is not None:
        need(p.min_new_tokens <= p.max_new_tokens, "min_new_tokens", "<= max_new_tokens")
    need(0 <= p.temperature < inf, "temperature", "a finite number >= 0")
    need(0 < p.top_p <= 1, "top_p", "in (0, 1]")
    need(p.top_k == -1 or 1 <= p.top_k < _INT64, "top_k", "-1 (all) or >= 1")
    need(0 <= p.min_p <= 1, "min_p", "in [0, 1]")
    need(-2 <= p.frequency_penalty <= 2, "frequency_penalty", "in [-2, 2]")
    need(-2 <= p.presence_penalty <= 2, "presence_penalty", "in [-2, 2]")
    need(0 < p.repetition_penalty <= 2, "repetition_penalty", "in (0, 2]")
    need(1 <= p.n <= MAX_N, "n", f"in [1, {MAX_N}]")
    need(
        p.sampling_seed is None or -_INT64 <= p.sampling_seed < _INT64,
        "sampling_seed",
        "a 64-bit integer",
    )
    need(p.stream_interval is None or 1 <= p.stream_interval < _INT64, "stream_interval", ">= 1")


def _check_lists(p: SamplingParams, vocab_size: int | None, param: str) -> None:
    for key, limit in (
        ("stop", MAX_STOPS),
        ("stop_regex", MAX_STOPS),
        ("stop_token_ids", MAX_STOP_TOKEN_IDS),
        ("logit_bias", MAX_LOGIT_BIAS),
    ):
        count = len(getattr(p, key))
        _require(count <= limit, key, f"at most {limit} entries long", count, param)
    for key in ("stop", "stop_regex"):
        for text in getattr(p, key):
            rule = "text without half of a surrogate pair"
            _require(_is_unicode(text), key, rule, text[:40], param)
    for text in p.stop:
        rule = f"non-empty strings of at most {MAX_STOP_LEN} characters"
        _require(0 < len(text) <= MAX_STOP_LEN, "stop", rule, text[:40], param)
    for pattern in p.stop_regex:
        rule = f"non-empty patterns of at most {MAX_STOP_REGEX_BYTES} bytes"
        size = len(pattern.encode("utf-8", "surrogatepass"))
        _require(0 < size <= MAX_STOP_REGEX_BYTES, "stop_regex", rule, pattern[:40], param)
    for bias in p.logit_bias.values():
        _require(-100 <= bias <= 100, "logit_bias", "numbers in [-100, 100]", bias, param)
    if vocab_size is not None:
        rule = f"token ids in [0, {vocab_size})"
        for key in ("stop_token_ids", "logit_bias"):
            for token_id in getattr(p, key):
                _require(0 <= token_id < vocab_size, key, rule, token_id, param)


def _is_unicode(text: str) -> bool:
    """Whether a message can carry the text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
