"""A scripted model on disk: it emits what its prompt says, with a tokenizer of chosen tokens."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

__all__ = ["ScriptTokenizer", "byte_level_tokenizer", "make_scripted_model"]

SPECIAL = (
    "<|start|>",
    "<|end|>",
    "<|eos|>",
    "<|fault|>",
    "<|crash|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|sep|>",
    "<fim_prefix>",
    "<fim_suffix>",
    "<fim_middle>",
    "<A>",
    "<B>",
)

# The script of a chat is what the last user message says.
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    "<|start|>{{ (messages | selectattr('role', 'equalto', 'user') | list | last).content"
    " if messages | selectattr('role', 'equalto', 'user') | list else 'none' }}<|end|>"
)


def _spell(data: bytes) -> str:
    """Bytes in the printable alphabet of byte-level BPE."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(256) if byte not in kept]
    alphabet = {byte: chr(byte) for byte in kept} | {b: chr(256 + n) for n, b in enumerate(moved)}
    return "".join(alphabet[byte] for byte in data)


def byte_level_tokenizer(
    tokens: Sequence[str | bytes] = (), special: Sequence[str] = SPECIAL
) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer: id = byte for the 256 bytes, then `tokens`, then `special`.

    Merges make each token from its bytes, left to right, so text that contains it encodes to it
    where no other token's merge comes first.
    """
    vocab = {_spell(bytes([byte])): byte for byte in range(256)}
    merges: list[tuple[str, str]] = []
    wanted = [token.encode() if isinstance(token, str) else token for token in tokens]
    for data in wanted:
        vocab.setdefault(_spell(data), len(vocab))
    for data in wanted:
        for end in range(2, len(data) + 1):
            vocab.setdefault(_spell(data[:end]), len(vocab))
            pair = (_spell(data[: end - 1]), _spell(data[end - 1 : end]))
            if pair not in merges:
                merges.append(pair)
    raw = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(list(special))
    return raw


@dataclass(frozen=True)
class ScriptTokenizer:
    """The tokenizer of a scripted model, with a way to write scripts."""

    raw: tokenizers.Tokenizer

    def id(self, piece: str | bytes) -> int:
        """Id of a token, given as its text or its bytes.

        Raises:
            KeyError: There is no such token.
        """
        token_id = self.raw.token_to_id(piece) if piece in SPECIAL else None
        if token_id is None:
            data = piece.encode() if isinstance(piece, str) else piece
            token_id = self.raw.token_to_id(_spell(data))
        if token_id is None:
            raise KeyError(piece)
        return int(token_id)

    def script(self, *pieces: str | bytes) -> list[int]:
        """Prompt ids that make the model emit these tokens, one a step, and then end."""
        return [self.id("<|start|>"), *map(self.id, pieces), self.id("<|end|>")]


def make_scripted_model(
    folder: Path, extra_tokens: Sequence[str | bytes] = (), *, step_delay_s: float = 0.0
) -> ScriptTokenizer:
    """Write a scripted model.

    Args:
        folder: Where; it must exist.
        extra_tokens: Tokens beside the 256 single bytes; bytes may be a piece of a character.
        step_delay_s: Seconds that a step takes.
    """
    raw = byte_level_tokenizer(extra_tokens)
    raw.save(str(folder / "tokenizer.json"))
    tokens = ScriptTokenizer(raw)
    config = {
        "architectures": ["ScriptedForCausalLM"],
        "model_type": "scripted",
        "vocab_size": raw.get_vocab_size(with_added_tokens=True),
        "max_position_embeddings": 8192,
        "eos_token_id": tokens.id("<|eos|>"),
        "script_start_id": tokens.id("<|start|>"),
        "script_end_id": tokens.id("<|end|>"),
        "fault_id": tokens.id("<|fault|>"),
        "crash_id": tokens.id("<|crash|>"),
        "step_delay_s": step_delay_s,
    }
    (folder / "config.json").write_text(json.dumps(config))
    settings = {"eos_token": "<|eos|>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokens
