"""OpenAI's request models: types, paths of errors, native names."""

from typing import Any

import pytest
from fastapi import FastAPI

from headwater.errors import InvalidRequest
from headwater.server.openai.openapi import describe
from headwater.server.openai.protocol.chat import ChatCompletion, ChatRequest
from headwater.server.openai.protocol.completions import CompletionRequest
from headwater.server.routes import load_routers

MESSAGES = [{"role": "user", "content": "q"}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None, "top_p": "x"}, "top_p"),
        ({"stop": 3}, "stop"),
        ({"stop": ["a", 3]}, "stop[1]"),
        ({"stream_options": {"include_usage": "x"}}, "stream_options.include_usage"),
        ({"stream_options": []}, "stream_options"),
        ({"documents": [{}, 3]}, "documents[1]"),
        ({"seed": 1.5}, "seed"),
        ({"seed": True}, "seed"),
        ({"temperature": True}, "temperature"),
        ({"stop": [1] * 1_000_000}, "stop"),
        ({"documents": [1] * 1_000_000}, "documents[0]"),
    ],
)
def test_a_wrong_type_is_named_by_its_path(fields: dict[str, Any], param: str) -> None:
    """Whatever else pydantic says, `param` is a path in the request."""
    with pytest.raises(InvalidRequest) as caught:
        ChatRequest.read({"messages": MESSAGES, **fields})
    assert (caught.value.param or "").split("[")[0] == param.split("[")[0]
    if len(str(fields)) < 1000:
        assert caught.value.param == param


def test_null_is_absent_and_unknown_fields_are_let_through() -> None:
    """As OpenAI does."""
    body = ChatRequest.read({"messages": MESSAGES, "temperature": None, "new_field": {"a": 1}})
    assert body.sampling_values() == {}


def test_sampling_fields_have_native_names() -> None:
    """Renamed where the names differ, an integer is a number."""
    body = CompletionRequest.read(
        {"prompt": "a", "seed": 5, "min_tokens": 2, "temperature": 1, "n": 3,
         "include_stop_str_in_output": True, "logit_bias": {"5": 1}}
    )  # fmt: skip
    assert body.sampling_values() == {
        "sampling_seed": 5,
        "min_new_tokens": 2,
        "temperature": 1,
        "n": 3,
        "no_stop_trim": True,
        "logit_bias": {"5": 1},
    }


def test_every_operation_has_a_name_of_its_own() -> None:
    """Programs are generated from /openapi.json; and showing /docs must not warn in the log."""
    app = FastAPI()
    for router in load_routers():
        app.include_router(router)
    paths = app.openapi()["paths"]  # a warning is an error in tests
    names = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(set(names)) == len(names)
    assert set(paths["/generate"]) == {"post", "put"}
    assert set(paths["/flush_cache"]) == {"get", "post"}


def test_every_field_is_described() -> None:
    """In /docs, with no reference left open."""
    for model in (ChatRequest, CompletionRequest):
        for name, field in model.model_fields.items():
            assert field.description, name
        extra = describe(model, ChatCompletion)["openapi_extra"]["requestBody"]
        schema = extra["content"]["application/json"]["schema"]
        assert "$ref" not in str(schema)
        assert set(schema["properties"]) == set(model.model_fields)
