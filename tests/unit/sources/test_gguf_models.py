"""Whole models as GGUF: the same decoder comes out as from transformers' own files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from headwater.errors import ModelLoadError
from headwater.kernels import KVPool, PortableOps, build_attention_meta
from headwater.models.decoder import Decoder
from headwater.models.loader import load_model
from headwater.sources.gguf_file import GgufFile
from headwater.sources.info import read_model_info
from headwater.sources.resolve import ModelFiles
from headwater.sources.weights import iter_weights

FAMILIES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
HEADS, KV_HEADS, VOCAB, LAYERS = 4, 2, 40, 2

# llama.cpp's names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tensor-names
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def make_model(arch: str, **fields: Any) -> Any:
    """A random model of transformers."""
    import transformers

    family = FAMILIES[arch]
    values: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
        "tie_word_embeddings": False,
        **fields,
    }
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(
        getattr(transformers, f"{family}Config")(**values)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # biases and norms start as constants
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def permute(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """As llama.cpp's converter stores queries and keys of a Llama: halves become pairs."""
    half = values.shape[0] // heads // 2
    return values.reshape(heads, 2, half, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def write(path: Path, model: Any, arch: str, more: Callable[[Any], None] | None = None) -> Path:
    """Write a model of transformers as GGUF."""
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(config.head_dim if hasattr(config, "head_dim") else 8)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if more is not None:
        more(writer)
    for name, parameter in model.named_parameters():
        stem, _, kind = name.rpartition(".")
        if stem.startswith("model.layers."):
            _, _, layer, part = stem.split(".", 3)
            gguf_name = f"blk.{layer}.{NAMES[part]}.{kind}"
        else:
            gguf_name = f"{NAMES[stem]}.{kind}"
        values = parameter.detach().numpy()
        if arch == "llama" and ".q_proj" in name:
            values = permute(values, HEADS)
        if arch == "llama" and ".k_proj" in name:
            values = permute(values, KV_HEADS)
        writer.add_tensor(gguf_name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def load(path: Path) -> Decoder:
    """The decoder of a file."""
    files = ModelFiles(path, "gguf", str(path))
    return load_model(
        files,
        read_model_info(files),
        dtype=torch.float32,
        device="cpu",
        ops=PortableOps(),
        context_length=64,
    )


def logits(decoder: Decoder, ids: list[int]) -> torch.Tensor:
    """[num_tokens, vocab]."""
    config = decoder.config
    pool = KVPool(
        num_layers=LAYERS,
        num_pages=2,
        page_size=32,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        dtype=torch.float32,
        device="cpu",
    )
    meta = build_attention_meta(
        [(0, len(ids), [0, 1])],
        page_size=32,
        sliding_window=config.sliding_window,
        dtype=torch.float32,
        device="cpu",
    )
    return decoder.forward(torch.tensor(ids), meta, pool, torch.arange(len(ids)))


CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True}),
    ("llama", {"attention_bias": True}),
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen3", {"head_dim": 16}),
]


@pytest.mark.parametrize(("arch", "fields"), CASES, ids=str)
def test_names_values_and_logits(arch: str, fields: dict[str, Any], tmp_path: Path) -> None:
    """Tensor by tensor as transformers has them, and so are the logits."""
    theirs = make_model(arch, **fields)
    path = write(tmp_path / "m.gguf", theirs, arch)
    expected = {name: value.detach().numpy() for name, value in theirs.named_parameters()}
    if fields.get("attention_bias"):  # transformers gives this bias to the output layer too
        assert "model.layers.0.self_attn.o_proj.bias" in expected
    found = {w.name: w.load() for w in iter_weights(ModelFiles(path, "gguf", ""))}
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    ids = [3, 17, 5, 39, 0, 0, 8, 21, 11]
    with torch.no_grad():
        reference = theirs(torch.tensor([ids])).logits[0]
    assert (logits(load(path), ids) - reference).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("embedding_length", 0),
        ("block_count", "two"),
        ("attention.head_count", [4, 4]),
        ("attention.head_count", True),
        ("attention.layer_norm_rms_epsilon", float("nan")),
        ("rope.freq_base", -1.0),
        ("context_length", 64.5),
    ],
)
def test_metadata_of_another_kind_is_named(key: str, value: Any, tmp_path: Path) -> None:
    """A number that is none is found in the file, not in the middle of a computation."""
    model = make_model("llama")

    def more(writer: Any) -> None:
        full = f"llama.{key}"
        for fields in writer.kv_data:
            fields.pop(full, None)
        if isinstance(value, list):
            writer.add_array(full, value)
        else:
            kinds = {bool: "bool", int: "uint32", str: "string", float: "float32"}
            getattr(writer, f"add_{kinds[type(value)]}")(full, value)

    path = write(tmp_path / "m.gguf", model, "llama", more)
    with pytest.raises(ModelLoadError, match=rf"m\.gguf: llama\.{key} is .* not a number"):
        read_model_info(ModelFiles(path, "gguf", ""))


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    """The config cannot be guessed."""

    def more(writer: Any) -> None:
        for fields in writer.kv_data:
            fields.pop("llama.feed_forward_length", None)

    path = write(tmp_path / "m.gguf", make_model("llama"), "llama", more)
    with pytest.raises(ModelLoadError, match=r"lacks the metadata key llama\.feed_forward_length"):
        read_model_info(ModelFiles(path, "gguf", ""))


def test_a_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    """One file of several has only some of the tensors; the error says what to do."""
    path = write(
        tmp_path / "m-00001-of-00003.gguf",
        make_model("llama"),
        "llama",
        lambda writer: writer.add_uint16("split.count", 3),
    )
    with pytest.raises(ModelLoadError, match=r"one of 3 parts.*merge"):
        read_model_info(ModelFiles(path, "gguf", ""))


def test_a_truncated_file_of_weights_is_named(tmp_path: Path) -> None:
    """A download that was cut off, at any place behind the header."""
    path = write(tmp_path / "m.gguf", make_model("llama"), "llama")
    whole = path.read_bytes()
    for keep in (len(whole) - 1, len(whole) - 1000, len(whole) // 2):
        path.write_bytes(whole[:keep])
        with pytest.raises(ModelLoadError, match=r"m\.gguf"):
            load(path)


def test_a_type_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Integers are no weights."""
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("x", np.arange(4, dtype=np.int32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tensor,) = GgufFile(tmp_path / "m.gguf").tensors()
    with pytest.raises(ModelLoadError, match="tensor x has type I32, which is not supported"):
        tensor.load()
