"""GGUF metadata in the form of Hugging Face's config.json, and tensor names in its spelling.

Key names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import re
from collections.abc import Mapping
from typing import Any

from headwater.errors import ModelLoadError
from headwater.sources.gguf_file import GgufFile

__all__ = ["config_from_gguf", "eos_ids_from_gguf", "hf_tensor_name"]

ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "mistral3": ("MistralForCausalLM", "mistral"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
}

_FLOATS = ("attention.layer_norm_rms_epsilon", "rope.freq_base")

_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def hf_tensor_name(name: str) -> str | None:
    """The Hugging Face name of a GGUF tensor; None for one that is metadata (rope_freqs)."""
    match = _LAYER.fullmatch(name)
    if match is not None:
        part = _LAYER_TENSORS.get(match[2], match[2])
        return f"model.layers.{match[1]}.{part}.{match[3]}"
    if name == "rope_freqs.weight":
        return None
    stem, _, kind = name.rpartition(".")
    return f"{_TENSORS.get(stem, stem)}.{kind}"


def config_from_gguf(file: GgufFile) -> dict[str, Any]:
    """The model's config.

    Raises:
        ModelLoadError: The architecture is unknown, a key is missing or of another kind, or the
            file is only a part of a model.
    """
    path, fields = file.path, file.fields
    arch = fields.get("general.architecture")
    if not isinstance(arch, str) or arch not in ARCHITECTURES:
        raise ModelLoadError(
            f"{path} has architecture {arch!r}; known are {', '.join(ARCHITECTURES)}"
        )

    num_parts = fields.get("split.count", 1)
    if isinstance(num_parts, int) and num_parts > 1:
        raise ModelLoadError(
            f"{path} is one of {num_parts} parts of a model; merge them first, with "
            "llama-gguf-split --merge"
        )

    def number(key: str, default: float | None = None) -> Any:
        value = fields.get(f"{arch}.{key}", default)
        if value is None:
            raise ModelLoadError(f"{path} lacks the metadata key {arch}.{key}")
        kinds = (int, float) if key in _FLOATS else (int,)
        if type(value) not in kinds or not value > 0:
            raise ModelLoadError(f"{path}: {arch}.{key} is {value!r}, not a number above 0")
        return value

    shapes = {tensor.name: tensor.shape for tensor in file.tensors()}
    if len(shapes.get("token_embd.weight", ())) != 2:
        raise ModelLoadError(f"{path} has no matrix token_embd.weight")
    num_heads, hidden_size = number("attention.head_count"), number("embedding_length")
    architecture, model_type = ARCHITECTURES[arch]
    config = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": shapes["token_embd.weight"][0],
        "hidden_size": hidden_size,
        "intermediate_size": number("feed_forward_length"),
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": number("attention.head_count_kv", num_heads),
        "head_dim": number("attention.key_length", hidden_size // num_heads),
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon"),
        "rope_theta": number("rope.freq_base", 10000.0),
        "max_position_embeddings": number("context_length"),
        "tie_word_embeddings": "output.weight" not in shapes,
        "hidden_act": "silu",
        "attention_bias": arch == "llama" and "blk.0.attn_q.bias" in shapes,
    }
    if fields.get(f"{arch}.attention.sliding_window"):
        config["sliding_window"] = number("attention.sliding_window")
        config["use_sliding_window"] = True
    config["rope_scaling"] = _rope_scaling(arch, fields, file)
    return config


def _rope_scaling(arch: str, fields: Mapping[str, Any], file: GgufFile) -> dict[str, Any] | None:
    kind = fields.get(f"{arch}.rope.scaling.type", "none")
    factor = fields.get(f"{arch}.rope.scaling.factor", 1.0)
    original = fields.get(f"{arch}.rope.scaling.original_context_length")
    for tensor in file.tensors():
        if tensor.name == "rope_freqs.weight":  # Llama 3: the scaling as ready-made divisors
            return {"rope_type": "freq_factors", "factors": tensor.load().tolist()}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        scaling = {"rope_type": "yarn", "factor": factor}
        if original:
            scaling["original_max_position_embeddings"] = original
        return scaling
    if kind != "none":
        raise ModelLoadError(f"rope scaling {kind!r} of a GGUF file is not supported")
    return None


def eos_ids_from_gguf(fields: Mapping[str, Any]) -> list[int]:
    """Tokens that end an answer: end of text and, where the file has one, end of turn."""
    keys = ("eos", "eot", "eom")
    values = [fields.get(f"tokenizer.ggml.{key}_token_id") for key in keys]
    return list(dict.fromkeys(v for v in values if isinstance(v, int)))
