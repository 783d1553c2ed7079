"""The offline engine: the same parts without HTTP."""

import asyncio
from collections.abc import Iterator

import pytest

from headwater import Engine
from headwater.errors import ConfigError, ContextLengthExceeded, InvalidRequest
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
        ({"prompt": ""}, "text"),
        ({"prompt": "a", "sampling_params": {"top_p": 2}}, "sampling_params.top_p"),
        ({"prompt": ["a"], "sampling_params": [{}, {}]}, "sampling_params"),
        ({"input_ids": [10**9]}, "text"),
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
