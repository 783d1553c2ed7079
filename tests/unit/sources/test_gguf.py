"""GGUF files: every tensor type, metadata, and files that are broken."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from headwater.errors import ModelLoadError
from headwater.sources.gguf_file import GgufFile
from headwater.sources.info import read_model_info
from headwater.sources.resolve import ModelFiles
from headwater.sources.weights import iter_weights

HIDDEN, INNER, VOCAB, HEADS, KV_HEADS = 64, 96, 32, 4, 2
Array = NDArray[Any]


def metadata(writer: Any, arch: str) -> None:
    """What a decoder's file must say."""
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}é" for i in range(VOCAB)])
    writer.add_token_types([3] + [1] * (VOCAB - 1))
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_chat_template("{{ messages }}")
    writer.add_string("tokenizer.chat_template.rag", "{{ documents }}")


def write_gguf(
    path: Path,
    tensors: Mapping[str, Array],
    *,
    arch: str = "llama",
    more: Callable[[Any], None] = lambda writer: None,
) -> Path:
    """Write a file."""
    writer = gguf.GGUFWriter(path, arch)
    metadata(writer, arch)
    more(writer)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def embedding() -> dict[str, Array]:
    """The tensor without which there is no config."""
    return {"token_embd.weight": np.ones((VOCAB, HIDDEN), dtype=np.float32)}


QUANTIZABLE = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
K_QUANTS = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
# Largest error of a number in [-1, 1], by type.
ERROR = {"F32": 0, "F16": 1e-3, "BF16": 8e-3, "Q8_0": 0.01, "Q5_1": 0.04, "Q5_0": 0.07}


@pytest.mark.parametrize("name", QUANTIZABLE)
def test_tensor_types_that_can_be_written(name: str, tmp_path: Path) -> None:
    """Numbers come back within the type's error, rows and columns in place."""
    kind = gguf.GGMLQuantizationType[name]
    values = np.random.default_rng(0).uniform(-1, 1, (48, 64)).astype(np.float32)
    raw = gguf.quants.quantize(values, kind)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    metadata(writer, "llama")
    writer.add_tensor("x", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tensor,) = GgufFile(tmp_path / "m.gguf").tensors()
    assert (tensor.name, tensor.shape, tensor.quant_type) == ("x", (48, 64), name)
    assert np.abs(tensor.load() - values).max() <= ERROR.get(name, 0.15)


@pytest.mark.parametrize("name", K_QUANTS)
def test_k_quants(name: str, tmp_path: Path) -> None:
    """Any blocks come out as the package's own dequantizer gives them, row by row."""
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(1).integers(0, 100, (6, 2 * size), dtype=np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    metadata(writer, "llama")
    writer.add_tensor("x", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tensor,) = GgufFile(tmp_path / "m.gguf").tensors()
    assert tensor.shape == (6, 2 * block)
    rows = [gguf.quants.dequantize(row[None], kind)[0] for row in raw]
    np.testing.assert_array_equal(tensor.load(), np.stack(rows))


def test_metadata_of_all_kinds(tmp_path: Path) -> None:
    """Numbers, flags, texts and lists of them."""

    def more(writer: Any) -> None:
        writer.add_array("some.floats", [0.5, 1.5])
        writer.add_array("some.strings", ["", "ä", "x" * 1000])
        writer.add_bool("some.flag", True)

    fields = GgufFile(write_gguf(tmp_path / "m.gguf", embedding(), more=more)).fields
    assert fields["some.floats"] == [0.5, 1.5]
    assert fields["some.strings"] == ["", "ä", "x" * 1000]
    assert fields["some.flag"] is True
    assert fields["tokenizer.ggml.tokens"][3] == "t3é"
    assert fields["tokenizer.ggml.token_type"][:2] == [3, 1]
    assert fields["llama.context_length"] == 128


def test_info_from_metadata(tmp_path: Path) -> None:
    """Config, special tokens and template in Hugging Face's form."""
    path = write_gguf(tmp_path / "My-Model.gguf", embedding())
    info = read_model_info(ModelFiles(path, "gguf", str(path)))
    assert info.name == "My-Model"
    assert info.architecture == "LlamaForCausalLM"
    assert info.config["num_key_value_heads"] == KV_HEADS
    assert info.config["rope_theta"] == 5000.0
    assert info.config["vocab_size"] == VOCAB
    assert info.config["tie_word_embeddings"] is True
    assert info.eos_token_ids == [0]
    assert info.special_tokens["eos_token"] == "t0é"
    assert info.chat_templates == {"default": "{{ messages }}", "rag": "{{ documents }}"}
    assert info.context_length == 128


def test_llama_queries_and_keys_are_put_back_in_order(tmp_path: Path) -> None:
    """llama.cpp interleaves the halves of each head; here they are as transformers has them."""
    rng = np.random.default_rng(2)
    original = {
        "q": rng.standard_normal((HIDDEN, HIDDEN)).astype(np.float32),
        "k": rng.standard_normal((HIDDEN // 2, HIDDEN)).astype(np.float32),
    }

    def interleave(values: Array, heads: int) -> Array:
        half = values.shape[0] // heads // 2
        return values.reshape(heads, 2, half, HIDDEN).swapaxes(1, 2).reshape(values.shape)

    tensors = embedding() | {
        "blk.0.attn_q.weight": interleave(original["q"], HEADS),
        "blk.0.attn_k.weight": interleave(original["k"], KV_HEADS),
        "blk.0.attn_v.weight": original["k"],
    }
    path = write_gguf(tmp_path / "m.gguf", tensors)
    loaded = {w.name: w.load() for w in iter_weights(ModelFiles(path, "gguf", ""))}
    prefix = "model.layers.0.self_attn."
    np.testing.assert_array_equal(loaded[f"{prefix}q_proj.weight"], original["q"])
    np.testing.assert_array_equal(loaded[f"{prefix}k_proj.weight"], original["k"])
    np.testing.assert_array_equal(loaded[f"{prefix}v_proj.weight"], original["k"])


def test_llama3_rope_divisors(tmp_path: Path) -> None:
    """The tensor rope_freqs becomes part of the config and is no weight."""
    factors = np.array([1, 2, 4, 8, 8, 8, 8, 8], dtype=np.float32)
    path = write_gguf(tmp_path / "m.gguf", embedding() | {"rope_freqs.weight": factors})
    files = ModelFiles(path, "gguf", "")
    assert read_model_info(files).config["rope_scaling"]["factors"] == factors.tolist()
    assert [w.name for w in iter_weights(files)] == ["model.embed_tokens.weight"]


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    """With those that are known."""
    path = write_gguf(tmp_path / "m.gguf", embedding(), arch="mamba")
    with pytest.raises(ModelLoadError, match=r"mamba.*llama"):
        read_model_info(ModelFiles(path, "gguf", ""))


@pytest.mark.parametrize("keep", [0, 3, 10, 24, 100, 400, 900, 1500])
def test_a_broken_file_is_a_load_error(tmp_path: Path, keep: int) -> None:
    """Cut off anywhere, it is named; nothing else is raised."""
    path = write_gguf(tmp_path / "m.gguf", embedding())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelLoadError, match=r"m\.gguf"):
        read_model_info(ModelFiles(path, "gguf", ""))


def test_random_damage_never_escapes_as_another_error(tmp_path: Path) -> None:
    """Flipped bytes in the header: a load error or a value, never a crash."""
    path = write_gguf(tmp_path / "m.gguf", embedding())
    whole = path.read_bytes()
    rng = np.random.default_rng(4)
    for _ in range(150):
        data = bytearray(whole)
        for at in rng.integers(0, 1500, 4):
            data[at] = rng.integers(0, 256)
        path.write_bytes(bytes(data))
        try:
            read_model_info(ModelFiles(path, "gguf", ""))
        except ModelLoadError:
            continue
