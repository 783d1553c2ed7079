"""The offline engine: the same parts without HTTP."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Engine
from headwater.errors import ConfigError, ContextLengthExceeded, EngineDead, InvalidRequest
from tests.process.conftest import Model


@pytest.fixture(scope="module")
def engine(scripted_model: Model) -> Iterator[Engine]:
    """One engine for the module, with nothing left in it at the end."""
    with make(scripted_model) as engine:
        yield engine
        assert engine.state()["num_used_pages"] == 0


def make(model: Model) -> Engine:
    """A new engine."""
    return Engine(model=str(model.path), allow_scripted_model=True, log_level="warning")


def test_one_prompt_gives_a_dict_and_several_a_list(engine: Engine, scripted_model: Model) -> None:
    """Shapes as SGLang's engine."""
    script = scripted_model.tokens.script("ab", "cd")
    one = engine.generate(input_ids=script)
    assert one["text"] == "abcd"
    assert one["meta_info"]["finish_reason"]["type"] == "stop"
    two = engine.generate(["xy", "z"], {"max_new_tokens": 2})
    assert [answer["text"] for answer in two] == ["xy", "zz"]


def test_n_gives_a_list(engine: Engine) -> None:
    """Several answers to one prompt."""
    answers = engine.generate("xy", {"max_new_tokens": 2, "n": 3})
    assert [answer["text"] for answer in answers] == ["xy"] * 3


def test_a_stream_ends_with_the_whole_answer(engine: Engine, scripted_model: Model) -> None:
    """Each result holds all text so far; the last is what `generate` returns without stream."""
    script = scripted_model.tokens.script("ab", "cd", "ab")
    results = list(engine.generate(input_ids=script, stream=True))
    texts = [result["text"] for result in results]
    assert texts == sorted(texts, key=len)
    assert texts[-1] == "abcdab"
    assert results[-1]["meta_info"]["finish_reason"]["type"] == "stop"


def test_a_stream_that_is_left_ends_its_request(engine: Engine) -> None:
    """Closing the iterator aborts."""
    stream = engine.generate("x", {"max_new_tokens": 4000}, stream=True)
    next(stream)
    stream.close()
    for _ in range(500):
        if engine.state()["num_running"] == 0:
            return
    pytest.fail("the request still runs")


async def test_async_generate(engine: Engine) -> None:
    """Awaited and streamed, from a program with a loop of its own."""
    answers = await asyncio.gather(
        *(engine.async_generate(text, {"max_new_tokens": 3}) for text in "abc")
    )
    assert [answer["text"] for answer in answers] == ["aaa", "bbb", "ccc"]
    last = None
    async for result in await engine.async_generate("q", {"max_new_tokens": 3}, stream=True):
        last = result
    assert last is not None
    assert last["text"] == "qqq"


def test_messages_go_through_the_chat_template(engine: Engine) -> None:
    """The template of the scripted model makes the user's words the script."""
    answer = engine.generate(messages=[{"role": "user", "content": "hello"}])
    assert answer["text"] == "hello"


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "input_ids": [1]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "a", "sampling_params": {"top_p": 2}}, "sampling_params.top_p"),
        ({"prompt": ["a"], "sampling_params": [{}, {}]}, "sampling_params"),
        ({"input_ids": [10**9]}, "input_ids"),
        ({"input_ids": [[1], [10**9]]}, "input_ids[1]"),
        ({"input_ids": 5}, "input_ids"),
        ({"input_ids": ["x"]}, "input_ids"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": ["a", 5]}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt[1]"),
        ({"prompt": "a", "sampling_params": 5}, "sampling_params"),
        ({"prompt": "a", "sampling_params": [5]}, "sampling_params"),
        ({"messages": 5}, "messages"),
        ({"messages": []}, "messages"),
    ],
)
def test_wrong_input_raises_with_the_parameter(
    engine: Engine, options: dict[str, object], param: str
) -> None:
    """The same errors as over HTTP, as exceptions."""
    with pytest.raises(InvalidRequest) as caught:
        engine.generate(**options)  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.param == param


def test_too_long_a_prompt_names_both_numbers(engine: Engine) -> None:
    """The error tells what there is and what fits."""
    with pytest.raises(ContextLengthExceeded, match=r"9000 tokens.*8192"):
        engine.generate("x" * 9000)


def test_two_engines_do_not_disturb_each_other(engine: Engine, scripted_model: Model) -> None:
    """A second one in the same program answers, ends, and the first goes on."""
    with make(scripted_model) as other:
        assert other.generate("pq", {"max_new_tokens": 2})["text"] == "pq"
        assert engine.generate("rs", {"max_new_tokens": 2})["text"] == "rs"
    assert engine.generate("tu", {"max_new_tokens": 2})["text"] == "tu"
    other.shutdown()  # twice is fine


def test_unknown_settings_are_refused() -> None:
    """A setting is a flag's name."""
    with pytest.raises(ConfigError, match="modle"):
        Engine(modle="x")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_task_ends_its_request(engine: Engine, stream: bool) -> None:
    """The task ends as cancelled, and nothing goes on for it."""

    async def consume() -> None:
        params = {"max_new_tokens": 4000, "ignore_eos": True}
        results = await engine.async_generate("x", params, stream=stream)
        async for _ in results:
            pass

    task = asyncio.create_task(consume())
    while engine.state()["num_running"] == 0:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadline = time.monotonic() + 10
    while engine.state()["num_running"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logprob_start_len", "x"),
        ("logprob_start_len", -2),
        ("top_logprobs_num", 1.5),
        ("top_logprobs_num", 1025),
        ("token_ids_logprob", ["x"]),
    ],
)
def test_wrong_logprob_options_do_not_reach_the_worker(
    engine: Engine, name: str, value: Any
) -> None:
    """A message of wrong types would end it."""
    with pytest.raises(InvalidRequest) as info:
        engine.generate("x", return_logprob=True, **{name: value})
    assert info.value.param == name
    assert engine.generate("xy", {"max_new_tokens": 2})["text"] == "xy"


def test_half_a_surrogate_pair_in_a_stop_is_refused(engine: Engine) -> None:
    """No message can carry it; the request must not stay open."""
    with pytest.raises(InvalidRequest):
        engine.generate("x", {"stop": "\ud800"})
    assert engine.client.num_live == 0


def test_use_after_shutdown_says_so(scripted_model: Model) -> None:
    """And does not wait for a loop that has ended."""
    engine = make(scripted_model)
    engine.shutdown()
    engine.shutdown()
    for call in (engine.state, engine.flush_cache, lambda: engine.generate("x")):
        with pytest.raises(EngineDead):
            call()
    with pytest.raises(EngineDead):
        list(engine.generate("x", stream=True))


def test_a_program_that_does_not_shut_down_leaves_no_files(
    scripted_model: Model, tmp_path: Path
) -> None:
    """The end of the program ends the engine."""
    make_engine = "import sys; from headwater import Engine; engine = Engine(model=sys.argv[1], "
    program = make_engine + "allow_scripted_model=True)"
    command = [sys.executable, "-c", program, str(scripted_model.path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run(command, env=environment, check=True, timeout=60)
    assert not list(tmp_path.iterdir())
