"""Sampling parameters: what is refused, under which name, and what is filled in."""

import math
from typing import Any

import pytest

from headwater.errors import HeadwaterError, InvalidRequest, NotSupported, error_from_code
from headwater.messages.params import SamplingParams, params_from_dict

BAD: list[tuple[str, Any]] = [
    ("temperature", -1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", "hot"),
    ("top_p", 0),
    ("top_p", 1.5),
    ("top_p", [1]),
    ("top_k", 0),
    ("top_k", -2),
    ("top_k", 1.5),
    ("top_k", 10**30),
    ("min_p", -0.1),
    ("min_p", math.nan),
    ("frequency_penalty", 2.1),
    ("presence_penalty", -3),
    ("repetition_penalty", 0),
    ("max_new_tokens", -1),
    ("max_new_tokens", "many"),
    ("max_new_tokens", True),
    ("min_new_tokens", 129),
    ("n", 0),
    ("n", 10**6),
    ("stop", [""]),
    ("stop", 5),
    ("stop", ["x"] * 33),
    ("stop_regex", ["a" * 300]),
    ("stop_token_ids", [1000]),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", ["x"]),
    ("logit_bias", {"1000": 1}),
    ("logit_bias", {"one": 1}),
    ("logit_bias", {"1": 1000}),
    ("logit_bias", {str(i): 0 for i in range(2000)}),
    ("ignore_eos", "yes"),
    ("skip_special_tokens", 3),
    ("sampling_seed", 1 << 64),
    ("stream_interval", 0),
    ("temprature", 1),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_bad_value_is_named(key: str, value: object) -> None:
    """P5: a wrong value is a 400 whose `param` is the key."""
    with pytest.raises(InvalidRequest) as caught:
        params_from_dict({key: value}, vocab_size=1000)
    assert caught.value.param == f"sampling_params.{key}"
    assert caught.value.status == 400


@pytest.mark.parametrize("key", ["json_schema", "regex", "ebnf", "beam_width", "custom_params"])
def test_unsupported_key_says_so(key: str) -> None:
    """A known key that is not built yet is refused, and its empty value is not."""
    with pytest.raises(NotSupported, match="not supported yet"):
        params_from_dict({key: "x"})
    assert params_from_dict({key: None}) == SamplingParams()


def test_request_wins_over_defaults() -> None:
    """Order: request, then the model's own defaults, then the table."""
    params = params_from_dict({"top_k": 5}, defaults={"top_k": 50, "temperature": 0.6})
    assert (params.top_k, params.temperature, params.top_p) == (5, 0.6, 1.0)


def test_scalars_and_string_keys_are_accepted() -> None:
    """One stop string, one stop id, JSON's string keys and 64.0 mean what they look like."""
    params = params_from_dict(
        {"stop": "a", "stop_token_ids": 3, "logit_bias": {"7": -1}, "max_new_tokens": 64.0}
    )
    assert (params.stop, params.stop_token_ids, params.logit_bias) == (["a"], [3], {7: -1.0})
    assert params.max_new_tokens == 64


def test_null_max_new_tokens_means_rest_of_context() -> None:
    """An explicit null lifts the default limit."""
    assert params_from_dict({"max_new_tokens": None}).max_new_tokens is None
    assert params_from_dict({}).max_new_tokens == 128


def test_errors_survive_a_process_border() -> None:
    """A code rebuilds its class; an unknown code is our own fault."""
    error = error_from_code("context_length_exceeded", "too long", "input_ids")
    assert (error.status, error.param, type(error).__name__) == (
        400,
        "input_ids",
        "ContextLengthExceeded",
    )
    assert error_from_code("?", "x").status == HeadwaterError("x").status == 500
