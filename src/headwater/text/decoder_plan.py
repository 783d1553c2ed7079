"""What a tokenizer's decoder does to each token, read from its tokenizer.json.

A decoder is understood when it treats tokens one by one, up to rules about the first token, runs
of byte tokens and the ends of the text. For others `read_plan` gives None, and the window method
of `text.window_stream` is used.

Decoders: https://github.com/huggingface/tokenizers, `tokenizers/src/decoders` and `pre_tokenizers`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["DecoderPlan", "byte_level_bytes", "read_plan"]


@dataclass(frozen=True, slots=True)
class DecoderPlan:
    """How tokens become text.

    Attributes:
        is_byte_level: Tokens spell bytes in GPT-2's alphabet; nothing else applies then.
        has_byte_fallback: Tokens `<0xNN>` are bytes, and a run of them is decoded as a whole.
        joiner: Put before every token but the first.
        glue: A later token that begins with this loses it, and the joiner.
        cleanup: English clean-up of WordPiece, token by token.
        marker: Metaspace's marker, which becomes a space, or None.
        drops_first_markers: The first token loses its markers instead.
        replace_token: Replacements in each token, before byte runs are decoded.
        replace_text: Replacements of single characters in all of the text.
        suffix: End-of-word suffix, which becomes a space when another token follows.
        strip: A character and how many of it are cut from the start of the text.
    """

    is_byte_level: bool = False
    has_byte_fallback: bool = False
    joiner: str = ""
    glue: str = ""
    cleanup: bool = False
    marker: str | None = None
    drops_first_markers: bool = False
    replace_token: tuple[tuple[str, str], ...] = ()
    replace_text: tuple[tuple[str, str], ...] = ()
    suffix: str = ""
    strip: tuple[str, int] = ("", 0)

    def first(self, token: str) -> str:
        """Text of a token that stands first (before `strip`, and without its suffix's space)."""
        if self.marker is not None:
            return token.replace(self.marker, "" if self.drops_first_markers else " ")
        return self._common(self._clean(token) if self.cleanup else token)

    def later(self, token: str) -> str:
        """Text of a token that stands behind another."""
        if self.marker is not None:
            return token.replace(self.marker, " ")
        if self.glue and token.startswith(self.glue):
            token = token[len(self.glue) :]
        else:
            token = self.joiner + token
        return self._common(self._clean(token) if self.cleanup else token)

    def after_run(self, text: str) -> str:
        """Text of decoded bytes."""
        for old, new in self.replace_text:
            text = text.replace(old, new)
        return text

    def _common(self, token: str) -> str:
        for old, new in self.replace_token:
            token = token.replace(old, new)
        return self.after_run(token)

    @staticmethod
    def _clean(token: str) -> str:
        for old, new in _CLEANUP:
            token = token.replace(old, new)
        return token


# In this order; `decoders/wordpiece.rs: cleanup`.
_CLEANUP = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


def read_plan(decoder_json: str | None) -> DecoderPlan | None:
    """The plan of a tokenizer's decoder, or None when it is not understood.

    Args:
        decoder_json: The `decoder` part of a tokenizer.json; None when there is none.
    """
    if decoder_json is None:
        return DecoderPlan(joiner=" ")
    decoder = json.loads(decoder_json)
    match decoder.get("type"):
        case "ByteLevel":
            return DecoderPlan(is_byte_level=True)
        case "WordPiece":
            return DecoderPlan(joiner=" ", glue=decoder["prefix"], cleanup=decoder["cleanup"])
        case "Metaspace":
            return _metaspace(decoder)
        case "BPEDecoder":
            return DecoderPlan(suffix=decoder["suffix"])
        case "Sequence":
            return _sequence(decoder["decoders"])
        case _:
            return None


def _metaspace(decoder: Mapping[str, Any]) -> DecoderPlan:
    scheme = decoder.get("prepend_scheme")
    if scheme is None:  # the older spelling
        scheme = "always" if decoder.get("add_prefix_space", True) else "never"
    return DecoderPlan(marker=decoder["replacement"], drops_first_markers=scheme != "never")


def _sequence(steps: Sequence[Mapping[str, Any]]) -> DecoderPlan | None:
    """SentencePiece's shape: replacements, ByteFallback, Fuse, replacements, Strip at the start."""
    plan, is_fused = DecoderPlan(), False
    for step in steps:
        kind = step.get("type")
        if plan.strip[1]:
            return None  # something after Strip
        if kind == "Replace" and "String" in step["pattern"]:
            pair = (step["pattern"]["String"], step["content"])
            if not is_fused and not plan.has_byte_fallback:
                plan = replace(plan, replace_token=(*plan.replace_token, pair))
            elif is_fused and len(pair[0]) == 1:
                plan = replace(plan, replace_text=(*plan.replace_text, pair))
            else:
                return None
        elif kind == "ByteFallback" and not is_fused and not plan.has_byte_fallback:
            plan = replace(plan, has_byte_fallback=True)
        elif kind == "Fuse":
            is_fused = True
        elif kind == "Strip" and is_fused and step["stop"] == 0:
            plan = replace(plan, strip=(step["content"], step["start"]))
        else:
            return None
    return plan if is_fused else None


def byte_level_bytes(token: str) -> bytes:
    """The bytes that a byte-level token spells.

    A token that holds any other character stands for its own UTF-8, as an added token may.
    """
    if all(char in _BYTE_OF for char in token):
        return bytes([_BYTE_OF[char] for char in token])
    return token.encode("utf-8", errors="replace")


def _byte_level_table() -> dict[str, int]:
    """GPT-2's printable spelling of the 256 bytes (`bytes_to_unicode` in its encoder.py)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in kept}
    moved = (byte for byte in range(256) if byte not in kept)
    return table | {chr(256 + n): byte for n, byte in enumerate(moved)}


_BYTE_OF = _byte_level_table()
