"""Tiny random models on disk, made by transformers, for tests of the whole."""

import json
from pathlib import Path
from typing import Any

from tests.kit.scripted import byte_level_tokenizer

__all__ = ["FAMILIES", "make_tiny_model"]

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


# Family to the prefix of its classes in transformers, and what its config sets beside the usual.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "mistral": ("Mistral", {"sliding_window": 12, "head_dim": 12}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
}


def make_tiny_model(
    folder: Path, *, family: str = "llama", seed: int = 0, context_length: int = 512
) -> None:
    """Write a random model of a few thousand weights, with a byte-level tokenizer.

    Args:
        folder: Where; it must exist.
        family: One of `FAMILIES`.
        seed: Of the weights.
        context_length: The model's own context.
    """
    import torch
    import transformers

    raw = byte_level_tokenizer()
    raw.save(str(folder / "tokenizer.json"))
    eos = raw.token_to_id("<|eos|>")
    torch.manual_seed(seed)
    prefix, fields = FAMILIES[family]
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=raw.get_vocab_size(with_added_tokens=True),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context_length,
        initializer_range=0.3,  # wide, so that the next token is not a near tie
        eos_token_id=eos,
        bos_token_id=None,
        **fields,
    )
    model = getattr(transformers, f"{prefix}ForCausalLM")(config)
    model.eval().save_pretrained(folder)
    settings = {"eos_token": "<|eos|>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
