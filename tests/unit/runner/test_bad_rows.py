"""Rows that cannot be computed end alone, with the reason, and the process lives."""

from pathlib import Path

import pytest

from headwater.messages.requests import LogprobSpec
from tests.unit.runner.test_model_runner import PROMPTS, Engine, Model, ask


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model in order."""
    return Model(tmp_path_factory.mktemp("good"))


def reason(engine: Engine, uid: int) -> str:
    """Why a request failed."""
    finish = engine.outputs[uid][-1].finish
    assert finish is not None
    assert finish.type == "error"
    assert finish.message is not None
    return finish.message


@pytest.mark.parametrize("kind", ["first beyond", "far beyond", "negative"])
@pytest.mark.parametrize("place", [0, 3, 9])
@pytest.mark.parametrize("chunk", [4, 64])
def test_ids_that_the_model_lacks(model: Model, kind: str, place: int, chunk: int) -> None:
    """The second lock on the door: without it one such id ends everybody's answers."""
    size = model.ours.config.vocab_size
    unknown = {"first beyond": size, "far beyond": 1 << 40, "negative": -1}[kind]
    engine = Engine(model.ours, chunked_prefill_size=chunk)
    prompt = PROMPTS[3][:10]
    bad = [*prompt[:place], unknown, *prompt[place + 1 :]]
    engine.run([ask(1, PROMPTS[1]), ask(2, bad), ask(3, PROMPTS[2])])
    assert reason(engine, 2) == f"token id {unknown} is not in [0, {size})"
    assert engine.ids(1) == model.generate(PROMPTS[1])
    assert engine.ids(3) == model.generate(PROMPTS[2])


@pytest.mark.parametrize("chunk", [3, 64])
def test_a_prompt_without_a_score(tmp_path: Path, chunk: int) -> None:
    """When only the prompt's log-probabilities are wanted, NaN is an error and no record."""
    model = Model(tmp_path)
    next(model.ours.weights())[200] = float("nan")
    engine = Engine(model.ours, chunked_prefill_size=chunk)
    spec = LogprobSpec(start_len=1)
    engine.run(
        [
            ask(1, [5, 6, 200, 7, 8, 9], max_new_tokens=0, logprobs=spec),
            ask(2, [5, 6, 7, 8, 9], max_new_tokens=0, logprobs=spec),
        ]
    )
    assert "not finite" in reason(engine, 1)
    assert engine.outputs[1][-1].input_logprobs is None
    assert engine.finish_type(2) == "length"
