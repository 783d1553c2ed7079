"""Logits of every family against `transformers`, in float32, on tiny random configs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from headwater.kernels import PortableOps
from headwater.models.loader import load_model
from headwater.models.model import StepModel
from headwater.models.native import WeightPrecision, load_native_model
from headwater.sources.info import ModelInfo
from headwater.sources.resolve import ModelFiles
from tests.kit.native import ISAS, native_library

PAGE = 4
TOLERANCE = 1e-4
LENGTHS = (1, 3, 4, 5, 17, 70)

BASE: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
}


def rope(kind: str, **fields: Any) -> dict[str, Any]:
    """Rotary parameters as transformers spells them."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **fields}}


LONG = [1.0 + i for i in range(6)]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("Llama", {"num_key_value_heads": 4}),
    "llama3": (
        "Llama",
        rope(
            "llama3",
            factor=4.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=32,
        ),
    ),
    "llama-linear": ("Llama", rope("linear", factor=2.0)),
    "llama-dynamic": ("Llama", rope("dynamic", factor=2.0)),
    "llama-yarn": ("Llama", rope("yarn", factor=4.0, original_max_position_embeddings=32)),
    "llama-longrope": (
        "Llama",
        rope(
            "longrope",
            short_factor=[1.0] * 6,
            long_factor=LONG,
            original_max_position_embeddings=32,
            factor=4.0,
        ),
    ),
    "llama-bias": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "smollm2": ("Llama", {"tie_word_embeddings": True, "num_attention_heads": 6}),
    "yi": ("Llama", {"num_key_value_heads": 1, "rms_norm_eps": 1e-5}),
    "mistral": ("Mistral", {"sliding_window": 8, "head_dim": 12}),
    "mistral-full": ("Mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3-window": (
        "Qwen3",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
}


def make(name: str, folder: Path, kernels: str) -> tuple[Any, StepModel[Any]]:
    """The same random model in transformers and, through its files, here."""
    family, fields = CASES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**BASE, **fields})
    theirs = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():  # biases and norms start as constants; make them count
        for parameter in theirs.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    theirs.save_pretrained(folder)
    files = ModelFiles(folder, "hf", str(folder))
    info = ModelInfo(
        name=name, config=config.to_dict() | {"architectures": [f"{family}ForCausalLM"]}
    )
    if kernels in ISAS:
        library = native_library(kernels)
        precision = WeightPrecision()
        ours: StepModel[Any] = load_native_model(
            files, info, library=library, precision=precision, num_threads=2, context_length=128
        )
        return theirs, ours
    ours = load_model(
        files, info, dtype=torch.float32, device="cpu", ops=PortableOps(), context_length=128
    )
    return theirs, ours


class Runs:
    """Runs prompts in pieces and company, on scattered pages, and collects all logits."""

    def __init__(self, model: StepModel[Any], prompts: Sequence[list[int]]) -> None:
        self.model = model
        self.prompts = prompts
        num_pages = sum(len(p) // PAGE + 1 for p in prompts)
        order = torch.randperm(num_pages, generator=torch.Generator().manual_seed(1)).tolist()
        self.pages = []
        for prompt in prompts:
            self.pages.append([order.pop() for _ in range(len(prompt) // PAGE + 1)])
        self.pool = model.make_pool(num_pages, PAGE)
        self.done = [0] * len(prompts)
        self.logits: list[list[torch.Tensor]] = [[] for _ in prompts]

    def step(self, counts: Sequence[int]) -> None:
        """Compute the next `counts[i]` tokens of every prompt; 0 leaves it out."""
        active = [(i, n) for i, n in enumerate(counts) if n]
        rows = [(self.done[i], self.done[i] + n, self.pages[i]) for i, n in active]
        ids = [t for i, n in active for t in self.prompts[i][self.done[i] : self.done[i] + n]]
        got = self.model.step(np.array(ids), rows, self.pool, range(len(ids)))
        for (i, n), part in zip(active, torch.split(got, [n for _, n in active]), strict=True):
            self.logits[i].append(part)
            self.done[i] += n

    def bits(self) -> list[bytes]:
        """All logits of each prompt."""
        return [torch.cat(parts).numpy().tobytes() for parts in self.logits]

    def difference(self, theirs: Any) -> float:
        """Largest difference to transformers' logits, each prompt alone and whole."""
        worst = 0.0
        for prompt, parts in zip(self.prompts, self.logits, strict=True):
            with torch.no_grad():
                expected = theirs(torch.tensor([prompt])).logits[0]
            worst = max(worst, (torch.cat(parts) - expected).abs().max().item())
        return worst


def make_prompts() -> list[list[int]]:
    """One prompt of each length."""
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(0, 128, (n,), generator=generator).tolist() for n in LENGTHS]


# transformers takes the short factors of longrope, and no growth in dynamic, for short texts; here
# the served context decides. So those two are compared on a long text only.
def comparable(name: str) -> list[list[int]]:
    """Prompts on which both mean the same."""
    prompts = make_prompts()
    return prompts[-1:] if name == "llama-longrope" else prompts


@pytest.mark.parametrize("kernels", ["portable", *ISAS])
@pytest.mark.parametrize("name", list(CASES))
def test_logits_equal_transformers(name: str, kernels: str, tmp_path: Path) -> None:
    """Whole prompts, alone and all in one step; in odd chunks; and token by token.

    The native operations give the same bits in all of them.
    """
    theirs, ours = make(name, tmp_path, kernels)
    prompts = comparable(name)
    for prompt in prompts:
        alone = Runs(ours, [prompt])
        alone.step([len(prompt)])
        assert alone.difference(theirs) <= TOLERANCE
    together = Runs(ours, prompts)
    together.step([len(prompt) for prompt in prompts])
    assert together.difference(theirs) <= TOLERANCE
    chunked = Runs(ours, prompts)
    while any(n < len(p) for n, p in zip(chunked.done, prompts, strict=True)):
        left = [len(p) - n for n, p in zip(chunked.done, prompts, strict=True)]
        chunked.step([min(rest, 7 + i) for i, rest in enumerate(left)])
    assert chunked.difference(theirs) <= TOLERANCE
    if kernels in ISAS:
        assert together.bits() == chunked.bits()
    decoded = Runs(ours, prompts)
    decoded.step([len(p) if len(p) < 10 else 1 for p in prompts])
    while any(n < len(p) for n, p in zip(decoded.done, prompts, strict=True)):
        decoded.step([int(n < len(p)) for n, p in zip(decoded.done, prompts, strict=True)])
    assert decoded.difference(theirs) <= TOLERANCE
    if kernels in ISAS:
        assert together.bits() == decoded.bits()
