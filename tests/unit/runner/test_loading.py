"""Checkpoints into decoders: what is wrong with one is named, and nothing is kept twice."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headwater.errors import ModelLoadError
from headwater.kernels import PortableOps
from headwater.models.decoder import Decoder
from headwater.models.loader import load_model
from headwater.sources.info import read_model_info
from headwater.sources.resolve import ModelFiles
from tests.kit.tiny_models import make_tiny_model

Tensors = dict[str, torch.Tensor]
WEIGHTS = "model.safetensors"
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    """Load a directory."""
    files = ModelFiles(folder, "hf", str(folder))
    return load_model(
        files,
        read_model_info(files),
        dtype=dtype,
        device="cpu",
        ops=PortableOps(),
        context_length=64,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete model; tests work on copies of its tensors."""
    folder = tmp_path_factory.mktemp("whole")
    make_tiny_model(folder)
    return folder


@pytest.fixture
def changed(whole: Path, tmp_path: Path) -> Callable[[Callable[[Tensors], Any]], Path]:
    """Write the model once more with its tensors changed; returns the directory."""

    def write(change: Callable[[Tensors], Any], **config: Any) -> Path:
        settings = json.loads((whole / "config.json").read_text()) | config
        (tmp_path / "config.json").write_text(json.dumps(settings))
        (tmp_path / "tokenizer.json").write_text("{}")
        tensors = load_file(whole / WEIGHTS)
        change(tensors)
        save_file(tensors, tmp_path / WEIGHTS)
        return tmp_path

    return write


def test_a_missing_tensor_is_named(changed: Callable[..., Path]) -> None:
    """The first three, and how many more."""
    with pytest.raises(ModelLoadError, match=rf"lacks tensor {Q_PROJ}$"):
        load(changed(lambda tensors: tensors.pop(Q_PROJ)))

    def drop_layer(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.startswith("model.layers.1.")]:
            del tensors[name]

    with pytest.raises(ModelLoadError, match=r"layers\.1\.input_layernorm\.weight.* and 6 more$"):
        load(changed(drop_layer))


def test_an_unexpected_tensor_is_named(changed: Callable[..., Path]) -> None:
    """A bias that the config does not speak of would change every answer if it were left out."""
    name = Q_PROJ.replace("weight", "bias")
    with pytest.raises(ModelLoadError, match=f"unexpected tensor {name}"):
        load(changed(lambda tensors: tensors.update({name: torch.zeros(48)})))


def test_a_tensor_of_the_wrong_shape_is_named(changed: Callable[..., Path]) -> None:
    """With both shapes; a transposed matrix is not taken either."""
    with pytest.raises(ModelLoadError, match=rf"{Q_PROJ} has shape \[48, 47\].* \[48, 48\]"):
        load(changed(lambda tensors: tensors.update({Q_PROJ: torch.zeros(48, 47)})))
    name = "model.layers.0.mlp.down_proj.weight"
    with pytest.raises(ModelLoadError, match=rf"{name} has shape \[96, 48\].* \[48, 96\]"):
        load(changed(lambda tensors: tensors.update({name: torch.zeros(96, 48)})))


def test_a_tensor_that_comes_twice_is_named(changed: Callable[..., Path]) -> None:
    """Two shards with one tensor: which of them counts would be luck."""
    folder = changed(lambda tensors: None)
    (folder / WEIGHTS).rename(folder / "a.safetensors")
    save_file({"model.norm.weight": torch.zeros(48)}, folder / "b.safetensors")
    with pytest.raises(ModelLoadError, match=r"tensor model\.norm\.weight twice"):
        load(folder)


def test_buffers_that_follow_from_the_config_are_left_out(changed: Callable[..., Path]) -> None:
    """Older checkpoints carry rotary frequencies."""
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    load(changed(lambda tensors: tensors.update({name: torch.zeros(6)})))


def weights_of(decoder: Decoder) -> list[torch.Tensor]:
    """All tensors, each once."""
    return list(decoder.weights())


def test_tied_embeddings_are_kept_once(changed: Callable[..., Path], whole: Path) -> None:
    """With or without a second copy in the checkpoint; the config says that they are tied."""
    untied = weights_of(load(whole))
    shape = untied[0].shape
    assert sum(w.shape == shape for w in untied) == 2
    for change in (lambda tensors: None, lambda tensors: tensors.pop("lm_head.weight")):
        tied = weights_of(load(changed(change, tie_word_embeddings=True)))
        assert sum(w.shape == shape for w in tied) == 1
        assert len(tied) == len(untied) - 1
    with pytest.raises(ModelLoadError, match=r"lacks tensor lm_head\.weight"):
        load(changed(lambda tensors: tensors.pop("lm_head.weight")))


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("served", [torch.float32, torch.float16, torch.bfloat16])
def test_numbers_are_converted_as_torch_does(
    stored: torch.dtype, served: torch.dtype, changed: Callable[..., Path]
) -> None:
    """Every stored type to every served type, fused matrices in their order."""
    kept: Tensors = {}

    def convert(tensors: Tensors) -> None:
        for name in tensors:
            tensors[name] = tensors[name].to(stored)
        kept.update(tensors)

    embedding, *rest = weights_of(load(changed(convert), served))
    assert embedding.dtype == served
    assert torch.equal(embedding, kept["model.embed_tokens.weight"].to(served))
    prefix = "model.layers.0.self_attn."
    parts = [kept[f"{prefix}{name}_proj.weight"] for name in "qkv"]
    fused = torch.cat(parts).to(served)
    assert any(w.shape == fused.shape and torch.equal(w, fused) for w in rest)


MEASURE = """
import re, sys
from pathlib import Path
import psutil, torch
from tests.unit.runner.test_loading import load
load(Path(sys.argv[1]))  # a tiny one: what the first load alone needs
before = psutil.Process().memory_info().rss
decoder = load(Path(sys.argv[2]))
# Not ru_maxrss, which begins with what the parent had at the fork.
status = Path("/proc/self/status").read_text()
peak = int(re.search(r"VmHWM:\\s*(\\d+) kB", status)[1]) * 1024
print(peak - before, sum(w.numel() * w.itemsize for w in decoder.weights()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_loading_takes_little_more_memory_than_the_weights(whole: Path, tmp_path: Path) -> None:
    """60 MB of bfloat16 become 120 MB of float32, with at most a third more at any time."""
    vocab, hidden, inner, layers = 32000, 512, 2048, 3
    tensors = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}{name}.weight"] = (hidden,)
        for name in "qkvo":
            tensors[f"{prefix}self_attn.{name}_proj.weight"] = (hidden, hidden)
        for name in ("gate", "up"):
            tensors[f"{prefix}mlp.{name}_proj.weight"] = (inner, hidden)
        tensors[f"{prefix}mlp.down_proj.weight"] = (hidden, inner)
    save_file(
        {name: torch.ones(shape, dtype=torch.bfloat16) for name, shape in tensors.items()},
        tmp_path / WEIGHTS,
    )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text("{}")
    command = [sys.executable, "-c", MEASURE, str(whole), str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    grown, kept = map(int, done.stdout.split())
    assert kept > 110 << 20
    assert grown <= 1.3 * kept, f"{grown / kept:.2f} times the weights"
