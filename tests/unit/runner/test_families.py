"""Greedy answers of every family through scheduler and runner equal transformers' own."""

from pathlib import Path

import pytest

from tests.kit.tiny_models import FAMILIES
from tests.unit.runner.test_model_runner import PROMPTS, Engine, Model, ask


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "llama"])
def test_greedy_answers_of_a_family(family: str, tmp_path: Path) -> None:
    """Alone, at once in small chunks, and once more from the cache; windows are outgrown."""
    model = Model(tmp_path, family)
    expected = [model.generate(prompt) for prompt in PROMPTS]
    assert len({tuple(answer) for answer in expected}) == len(PROMPTS)
    alone = Engine(model.ours, chunked_prefill_size=512)
    together = Engine(model.ours, chunked_prefill_size=7)
    for uid, prompt in enumerate(PROMPTS):
        alone.run([ask(uid, prompt)])
    for start in (0, 10):
        together.run([ask(start + uid, prompt) for uid, prompt in enumerate(PROMPTS)])
    for uid, answer in enumerate(expected):
        assert alone.ids(uid) == answer
        assert together.ids(uid) == answer
        assert together.ids(10 + uid) == answer
