"""Bad input: every malformed request gets a 4xx that names the parameter, and the server lives."""

import json
import socket
import time
from typing import Any

import httpx
import pytest

from tests.conformance.conftest import Scripted

GENERATE, CHAT, TEXT = "/generate", "/v1/chat/completions", "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = [{"role": "user", "content": "q"}]


def generate(param: str, **fields: Any) -> tuple[str, Any, str]:
    """A wrong `/generate` body; `text` is there unless the case says otherwise."""
    body = {"text": "a", **fields}
    return GENERATE, {k: v for k, v in body.items() if v != "absent"}, param


def sampling(key: str, value: Any) -> tuple[str, Any, str]:
    """A wrong sampling parameter."""
    return GENERATE, {"text": "a", "sampling_params": {key: value}}, f"sampling_params.{key}"


def chat(param: str, **fields: Any) -> tuple[str, Any, str]:
    """A wrong chat body."""
    body = {"messages": MESSAGES, **fields}
    return CHAT, {k: v for k, v in body.items() if v != "absent"}, param


def text(param: str, **fields: Any) -> tuple[str, Any, str]:
    """A wrong completions body."""
    body = {"prompt": "a", **fields}
    return TEXT, {k: v for k, v in body.items() if v != "absent"}, param


def responses(param: str, **fields: Any) -> tuple[str, Any, str]:
    """A wrong responses body."""
    body = {"input": "a", **fields}
    return RESPONSES, {k: v for k, v in body.items() if v != "absent"}, param


CASES = [
    generate("text", text="absent"),
    generate("text", text=None),
    generate("text", input_ids=[1]),
    generate("text", text=""),
    generate("text", text=5),
    generate("text", text={}),
    generate("text", text=[]),
    generate("text[1]", text=["a", 3]),
    generate("text[1]", text=["a", ""]),
    generate("text", text="x" * 9000),
    generate("text", text="y" * 2_000_000),
    generate("text[1]", text=["a", "x" * 9000]),
    generate("text", text=["a"] * 2000),
    generate("input_ids", text="absent", input_ids=[]),
    generate("input_ids", text="absent", input_ids="abc"),
    generate("input_ids", text="absent", input_ids=[1, "a"]),
    generate("input_ids", text="absent", input_ids=[1.5]),
    generate("input_ids", text="absent", input_ids=[True]),
    generate("input_ids", text="absent", input_ids=[-1]),
    generate("input_ids", text="absent", input_ids=[10**9]),
    generate("input_ids", text="absent", input_ids=[10**30]),
    generate("input_ids[0]", text="absent", input_ids=[[]]),
    generate("input_ids[1]", text="absent", input_ids=[[1], [10**9]]),
    generate("input_ids[1]", text="absent", input_ids=[[1], 2]),
    generate("sampling_params", sampling_params="x"),
    generate("sampling_params", sampling_params=[{}]),
    generate("sampling_params[1]", text=["a", "b"], sampling_params=[{}, 3]),
    generate("sampling_params[1].top_p", text=["a", "b"], sampling_params=[{}, {"top_p": 9}]),
    generate("n", text=["a", "b"], sampling_params=[{"n": 1}, {"n": 2}]),
    generate("stream", stream="yes"),
    generate("rid", rid=5),
    generate("rid", rid=""),
    generate("rid", rid=["a", "b"]),
    generate("rid", text=["a", "b"], rid=["same", "same"]),
    generate("return_logprob", return_logprob="x"),
    generate("logprob_start_len", return_logprob=True, logprob_start_len=-2),
    generate("top_logprobs_num", return_logprob=True, top_logprobs_num=-1),
    generate("top_logprobs_num", return_logprob=True, top_logprobs_num=10**9),
    generate("top_logprobs_num", text=["a", "b"], return_logprob=True, top_logprobs_num=[1]),
    generate("token_ids_logprob", return_logprob=True, token_ids_logprob="x"),
    generate("token_ids_logprob", return_logprob=True, token_ids_logprob=[10**9]),
    generate("token_ids_logprob", return_logprob=True, token_ids_logprob=[-1]),
    generate("return_text_in_logprobs", return_logprob=True, return_text_in_logprobs=1),
    generate("image_data", image_data="http://x/y.png"),
    generate("input_embeds", input_embeds=[[0.1]]),
    generate("lora_path", lora_path="x"),
    generate("cache_salt", cache_salt=3),
    sampling("temperature", -1),
    sampling("temperature", "hot"),
    sampling("top_p", 0),
    sampling("top_p", 1.5),
    sampling("top_k", 0),
    sampling("top_k", 1.5),
    sampling("min_p", 2),
    sampling("max_new_tokens", -1),
    sampling("max_new_tokens", "5"),
    sampling("max_new_tokens", 9000),
    sampling("max_new_tokens", True),
    sampling("min_new_tokens", 999),
    sampling("frequency_penalty", 3),
    sampling("presence_penalty", -3),
    sampling("repetition_penalty", 0),
    sampling("n", 0),
    sampling("n", 10**9),
    sampling("stop", ""),
    sampling("stop", [""]),
    sampling("stop", [3]),
    sampling("stop", ["x"] * 33),
    sampling("stop_regex", "("),
    sampling("stop_regex", "a*"),
    sampling("stop_regex", "x" * 300),
    sampling("stop_token_ids", [10**9]),
    sampling("stop_token_ids", ["a"]),
    sampling("logit_bias", {"a": 1}),
    sampling("logit_bias", {"1": 1000}),
    sampling("logit_bias", {"99999999": 1}),
    sampling("ignore_eos", "no"),
    sampling("sampling_seed", 1 << 70),
    sampling("stream_interval", 0),
    sampling("json_schema", "{}"),
    sampling("regex", "a"),
    sampling("unknown_key", 1),
    chat("messages", messages="absent"),
    chat("messages", messages=None),
    chat("messages", messages="x"),
    chat("rid", rid=7),
    chat("echo", echo=1),
    chat("model", model=["a"]),
    chat("logit_bias", logit_bias={"5": "x"}),
    chat("metadata", metadata=3),
    chat("stop_token_ids[1]", stop_token_ids=[1, None]),
    chat("stop", stop=["x"] * 200_000),
    chat("messages[0]", messages=["x"]),
    chat("messages[0].role", messages=[{"role": "robot", "content": "x"}]),
    chat("messages[0].role", messages=[{"content": "x"}]),
    chat("messages[0].content", messages=[{"role": "user"}]),
    chat("messages[0].content", messages=[{"role": "user", "content": 5}]),
    chat("messages[0].content[0].type", messages=[{"role": "user", "content": [{"type": "x"}]}]),
    chat(
        "messages[0].content[0]",
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    ),
    chat("messages", messages=[{"role": "user", "content": "x" * 20000}]),
    chat("max_tokens", max_tokens=0),
    chat("max_tokens", max_tokens="5"),
    chat("max_completion_tokens", max_completion_tokens=-1),
    chat("temperature", temperature=-0.1),
    chat("top_p", top_p=2),
    chat("n", n=0),
    chat("seed", seed="x"),
    chat("stop[0]", stop=[1]),
    chat("logprobs", logprobs=5),
    chat("top_logprobs", top_logprobs=3),
    chat("logit_bias", logit_bias={"x": 1}),
    chat("stream_options", stream_options={"include_usage": True}),
    chat("stream_options", stream=True, stream_options=3),
    chat("tools", tools=[{"type": "function", "function": {"name": "f"}}]),
    chat("response_format", response_format={"type": "json_object"}),
    chat("chat_template_kwargs", chat_template_kwargs=3),
    chat("chat_template_kwargs.messages", chat_template_kwargs={"messages": []}),
    chat("chat_template", chat_template="{{ messages }}"),
    chat("chat_template_kwargs.chat_template", chat_template_kwargs={"chat_template": "x"}),
    chat("documents[0]", documents=["x"]),
    chat("add_generation_prompt", add_generation_prompt=True, continue_final_message=True),
    chat("min_tokens", min_tokens=-1),
    *(
        make("rid", rid=rid)
        for make in (generate, chat, text, responses)
        for rid in ("", "two words", "\0", "\n", "日", "x" * 257, 5, ["a"])
    ),
    responses("input", input="absent"),
    responses("input", input=[]),
    responses("input", input=5),
    responses("input[1]", input=[*MESSAGES, 5]),
    responses("input[1].role", input=[*MESSAGES, {"role": "robot", "content": "x"}]),
    responses("input[0].content[0].text", input=[{"role": "user", "content": [{"type": "text"}]}]),
    responses(
        "input[0].content[0]", input=[{"role": "user", "content": [{"type": "input_image"}]}]
    ),
    responses("input[0].type", input=[{"type": "reasoning"}]),
    responses("input[0].name", input=[{"type": "function_call", "call_id": "c"}]),
    responses("input[0].call_id", input=[{"type": "function_call_output", "output": "o"}]),
    responses("instructions", instructions=5),
    responses("max_output_tokens", max_output_tokens=0),
    responses("max_output_tokens", max_output_tokens=10**7),
    responses("max_tokens", max_tokens=4),
    responses("n", n=2),
    responses("include[0]", include=["file_search_call.results"]),
    responses("top_logprobs", top_logprobs=2),
    responses("top_logprobs", top_logprobs=21, include=["message.output_text.logprobs"]),
    responses("text.format", text={"format": {"type": "json_object"}}),
    responses("truncation", truncation="auto"),
    responses("previous_response_id", previous_response_id="resp_1"),
    responses("background", background=True),
    responses("tools", tools=[{"type": "function", "name": "f"}]),
    responses("stop", stop=5),
    text("prompt", prompt=None),
    text("prompt", prompt=5),
    text("prompt", prompt=[1, "a"]),
    text("prompt[1]", prompt=["a", 5]),
    text("prompt[1]", prompt=["a", ""]),
    text("max_tokens", max_tokens=-1),
    text("max_tokens", max_tokens=10**7),
    text("logprobs", logprobs=99),
    text("echo", echo="x"),
    text("suffix", suffix=["x"]),
    text("best_of", best_of=0),
    text("best_of", best_of=2, n=3),
    text("best_of", best_of=1000),
    text("best_of", best_of=3, stream=True),
    text("best_of", best_of="3"),
    text("stop", stop={"a": 1}),
    text("stop[1]", stop=["a", 1]),
    text("stream_options.include_usage", stream=True, stream_options={"include_usage": 3}),
    text("prompt", prompt="absent"),
    text("regex", regex="a"),
    text("priority", priority=3),
    text("cache_salt", cache_salt=3),
    ("/tokenize", {}, "prompt"),
    ("/tokenize", {"prompt": 5}, "prompt"),
    ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": ["a"]}, "tokens"),
    ("/detokenize", {"tokens": [10**9]}, "tokens"),
    ("/abort_request", {}, "rid"),
    ("/abort_request", {"rid": 5}, "rid"),
]


@pytest.mark.parametrize(("route", "body", "param"), CASES)
def test_a_wrong_field_is_named(scripted: Scripted, route: str, body: Any, param: str) -> None:
    """4xx with an OpenAI error object whose `param` is the field's path."""
    response = httpx.post(f"{scripted.url}{route}", json=body, timeout=60)
    assert 400 <= response.status_code < 500, response.text
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param, error
    assert error["message"]


RAW = [
    (b"{not json", "application/json", 400),
    (b"", "application/json", 400),
    (b"[]", "application/json", 400),
    (b'"text"', "application/json", 400),
    (b'{"text": NaN}', "application/json", 400),
    (b'{"text": "a", "sampling_params": {"temperature": 1e400}}', "application/json", 400),
    (b'{"text": "\xff"}', "application/json", 400),
    (b'{"text": "\\ud800"}', "application/json", 400),
    (b"[" * 100_000, "application/json", 400),
    (b'{"text": "a"}', "text/plain", 415),
    (b"text=a", "application/x-www-form-urlencoded", 415),
    (b'{"text": "' + b"x" * (33 << 20) + b'"}', "application/json", 413),
]


@pytest.mark.parametrize(("data", "kind", "status"), RAW)
def test_a_body_that_is_no_json_object(
    scripted: Scripted, data: bytes, kind: str, status: int
) -> None:
    """The right 4xx with an error object."""
    headers = {"content-type": kind}
    url = f"{scripted.url}/generate"
    response = httpx.post(url, content=data, headers=headers, timeout=60)
    assert response.status_code == status, response.text
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/generate", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/models/other", 404),
        ("DELETE", "/v1/chat/completions", 405),
    ],
)
def test_wrong_routes_and_methods(scripted: Scripted, method: str, path: str, status: int) -> None:
    """404 and 405 have the same error object."""
    response = httpx.request(method, f"{scripted.url}{path}", timeout=60)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("route", [CHAT, TEXT])
def test_an_unknown_model_is_404(scripted: Scripted, route: str) -> None:
    """With OpenAI's code."""
    body = {"model": "gpt-4", "messages": MESSAGES, "prompt": "a"}
    response = httpx.post(f"{scripted.url}{route}", json=body, timeout=60)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


def test_the_server_answers_the_next_request(scripted: Scripted) -> None:
    """After all of that."""
    body = {"input_ids": scripted.tokens.script("done")}
    answer = httpx.post(f"{scripted.url}/generate", json=body, timeout=60).json()
    assert answer["text"] == "done"


def test_more_alternatives_than_the_bound_are_refused(scripted: Scripted) -> None:
    """They are kept for each position: a long list of ids would take all of the worker's memory."""
    body = {"text": "a", "return_logprob": True, "token_ids_logprob": [1] * 1025}
    answer = httpx.post(scripted.url + GENERATE, json=body, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "token_ids_logprob"


@pytest.mark.parametrize("name", ["top_logprobs_num", "token_ids_logprob"])
def test_more_alternatives_in_all_than_the_bound_are_refused(scripted: Scripted, name: str) -> None:
    """Each position within its bound, all of them not; at fewer positions they are reported."""
    value = 1000 if name == "top_logprobs_num" else [1] * 1000
    body = {"return_logprob": True, name: value, "sampling_params": {"max_new_tokens": 1}}
    many = {**body, "input_ids": [65] * 3000, "logprob_start_len": 0}
    answer = httpx.post(scripted.url + GENERATE, json=many, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == name
    few = {**many, "logprob_start_len": 2999}
    assert httpx.post(scripted.url + GENERATE, json=few, timeout=60).status_code == 200


def test_answers_that_can_never_run_together_are_not_worth_a_retry(scripted: Scripted) -> None:
    """A 503 would have the client try again for ever."""
    body = {"prompt": ["a"] * 1024, "n": 128, "max_tokens": 1}
    answer = httpx.post(scripted.url + TEXT, json=body, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "n"


SLOW = ["(?:abcdefghij){e<=9}zz"] * 32


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        (GENERATE, {"sampling_params": {"stop_regex": SLOW, "max_new_tokens": 500}}),
        (TEXT, {"stop_regex": SLOW, "max_tokens": 500}),
        (CHAT, {"messages": [{**MESSAGES[0], "content": "q" * 500}], "stop_regex": SLOW}),
        (RESPONSES, {"input": "q" * 500, "stop_regex": SLOW}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_patterns_too_slow_for_the_answer_are_named(
    scripted: Scripted, route: str, fields: dict[str, Any], stream: bool
) -> None:
    """As the request's fault; in a stream as its last event."""
    prompt = {GENERATE: {"text": "q"}, TEXT: {"prompt": "q"}}.get(route, {})
    body = {**prompt, **fields, "stream": stream}
    answer = httpx.post(scripted.url + route, json=body, timeout=60)
    if not stream:
        assert answer.status_code == 400
        error = answer.json()["error"]
    else:
        assert answer.status_code == 200
        last = [line for line in answer.text.splitlines() if line.startswith("data: ")][-1]
        error = json.loads(last.removeprefix("data: "))["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == "stop_regex"


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        (CHAT, {"messages": MESSAGES, "chat_template_kwargs": {"a": None}}),
        (RESPONSES, {"input": "a", "metadata": {"a": None}}),
    ],
)
def test_deep_nesting_is_refused(scripted: Scripted, route: str, fields: dict[str, Any]) -> None:
    """Neither walking nor answering such values may end in Python's recursion limit."""
    body = json.dumps(fields).replace("null", "[" * 900 + "]" * 900)
    headers = {"content-type": "application/json"}
    answer = httpx.post(scripted.url + route, content=body, headers=headers, timeout=60)
    assert answer.status_code == 400
    assert "nested deeper" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "ab " * 300_000}),
        ("/tokenize", {"messages": [{"role": "user", "content": "ab " * 300_000}]}),
        (CHAT, {"messages": [{"role": "user", "content": "ab " * 300_000}]}),
        (TEXT, {"prompt": "a", "suffix": "ab " * 300_000}),
        (TEXT, {"prompt": "ab " * 300_000, "suffix": "a"}),
    ],
)
def test_what_cannot_fit_is_not_tokenized(
    scripted: Scripted, path: str, body: dict[str, Any]
) -> None:
    """Its length tells already, before time is spent on it."""
    answer = httpx.post(scripted.url + path, json=body, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert "characters" in answer.json()["error"]["message"]


def test_a_body_that_ends_early_is_no_fault_of_the_server(scripted: Scripted) -> None:
    """A client that leaves while it sends is not logged as a failure."""
    host, port = scripted.url.removeprefix("http://").split(":")
    before = len(scripted.server.lines)
    with socket.create_connection((host, int(port))) as client:
        head = b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
        client.sendall(head)
        time.sleep(0.2)
    time.sleep(0.3)
    assert not [line for line in scripted.server.lines[before:] if "ERROR" in line]


def test_what_monitors_and_clients_ask_of_a_server(scripted: Scripted) -> None:
    """Probes without a body, and the name that requests may give for any model."""
    for path in ("/health", "/ready"):
        answer = httpx.head(scripted.url + path, timeout=60)
        assert (answer.status_code, answer.content) == (200, b"")
    model = httpx.get(f"{scripted.url}/v1/models/default", timeout=60).json()
    assert model == httpx.get(f"{scripted.url}/v1/models", timeout=60).json()["data"][0]
