"""A tokenizer from GGUF metadata; it knows the keys' meaning, not the file format.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from headwater.errors import ModelLoadError
from headwater.text.tokenizer import Tokenizer

__all__ = ["tokenizer_from_gguf"]

# tokenizer.ggml.token_type
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6

# Splitting patterns by `tokenizer.ggml.pre`; each is published in that family's tokenizer.json.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_REGEX = {"llama-bpe": _LLAMA3, "llama3": _LLAMA3, "qwen2": _QWEN2, "tekken": _TEKKEN}
# Families that look a whole word up before they merge, and that begin a text with BOS.
_WHOLE_WORDS = ("llama-bpe", "llama3", "tekken")
_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r")
_GPT2 = ("gpt-2", "gpt2", "default")


def tokenizer_from_gguf(fields: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer that a GGUF file describes.

    Args:
        fields: The file's metadata.

    Raises:
        ModelLoadError: The tokenizer is of an unknown kind, or its data is missing.
    """
    tokens = fields.get("tokenizer.ggml.tokens")
    if not tokens:
        raise ModelLoadError("the GGUF file has no tokenizer (tokenizer.ggml.tokens)")
    kind = fields.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise ModelLoadError(f"GGUF tokenizer model {kind!r} is not supported (gpt2, llama are)")
    try:
        build = _byte_level if kind == "gpt2" else _sentencepiece
        raw = build(fields, tokens)
        _add_special(raw, fields, tokens)
        _add_bos(raw, fields, tokens)
    except ModelLoadError:
        raise
    # The library raises bare Exception; and metadata can be of any type.
    except Exception as err:
        raise ModelLoadError(f"the GGUF file's tokenizer is broken: {err}") from err
    return Tokenizer(raw)


def _byte_level(fields: Mapping[str, Any], tokens: Sequence[str]) -> tokenizers.Tokenizer:
    merges = [tuple(line.split(" ", 1)) for line in fields.get("tokenizer.ggml.merges", [])]
    vocab = {token: i for i, token in enumerate(tokens)}
    name = fields.get("tokenizer.ggml.pre", "default")
    model = models.BPE(vocab=vocab, merges=merges, ignore_merges=name in _WHOLE_WORDS)
    raw = tokenizers.Tokenizer(model)
    raw.pre_tokenizer = _pre_tokenizer(name)
    if name == "qwen2":
        raw.normalizer = normalizers.NFC()
    raw.decoder = decoders.ByteLevel()
    return raw


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    if name in _REGEX:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_REGEX[name]), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in _SINGLE_DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, byte_level])
    if name in _GPT2:
        return byte_level
    known = ", ".join([*_REGEX, *_SINGLE_DIGITS, *_GPT2])
    raise ModelLoadError(f"GGUF pre-tokenizer {name!r} is not supported; known are {known}")


def _sentencepiece(fields: Mapping[str, Any], tokens: Sequence[str]) -> tokenizers.Tokenizer:
    """SentencePiece BPE: merges follow from the pieces' scores, best first."""
    scores = fields.get("tokenizer.ggml.scores")
    if not scores or len(scores) != len(tokens):
        raise ModelLoadError("the GGUF file's tokenizer has no scores (tokenizer.ggml.scores)")
    vocab = {token: i for i, token in enumerate(tokens)}
    # Only text is merged: "<s" and ">" do not become the control token "<s>".
    kinds = fields.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    others = (_UNKNOWN, _CONTROL, _BYTE)
    ranked = []
    for token, token_id in vocab.items():
        if kinds[token_id] in others:
            continue
        for cut in range(1, len(token)):
            left, right = vocab.get(token[:cut]), vocab.get(token[cut:])
            if left is not None and right is not None:
                ranked.append((-scores[token_id], left, right, token[:cut], token[cut:]))
    merges = [(left, right) for *_, left, right in sorted(ranked)]
    unknown = fields.get("tokenizer.ggml.unknown_token_id", 0)
    model = models.BPE(
        vocab=vocab, merges=merges, unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True
    )
    raw = tokenizers.Tokenizer(model)
    has_prefix = bool(fields.get("tokenizer.ggml.add_space_prefix", True))
    steps = [normalizers.Prepend("▁")] if has_prefix else []
    raw.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    raw.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return raw


def _add_special(
    raw: tokenizers.Tokenizer, fields: Mapping[str, Any], tokens: Sequence[str]
) -> None:
    kinds = fields.get("tokenizer.ggml.token_type", [])
    raw.add_tokens(
        [
            AddedToken(token, special=kind != _USER_DEFINED, normalized=False)
            for token, kind in zip(tokens, kinds, strict=False)
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ]
    )


def _add_bos(raw: tokenizers.Tokenizer, fields: Mapping[str, Any], tokens: Sequence[str]) -> None:
    # A SentencePiece model begins with BOS unless its file says no; a byte-level one rarely does.
    is_sentencepiece = fields.get("tokenizer.ggml.model") == "llama"
    default = is_sentencepiece or fields.get("tokenizer.ggml.pre") in _WHOLE_WORDS
    bos = fields.get("tokenizer.ggml.bos_token_id")
    eos = fields.get("tokenizer.ggml.eos_token_id")
    before = _template(bos, fields.get("tokenizer.ggml.add_bos_token", default), tokens)
    after = _template(eos, fields.get("tokenizer.ggml.add_eos_token", False), tokens)
    if before or after:
        raw.post_processor = processors.TemplateProcessing(
            single=[*(name for name, _ in before), "$A", *(name for name, _ in after)],
            special_tokens=list({**dict(before), **dict(after)}.items()),
        )


def _template(token_id: Any, wanted: Any, tokens: Sequence[str]) -> list[tuple[str, int]]:
    is_there = isinstance(token_id, int) and 0 <= token_id < len(tokens)
    return [(tokens[token_id], token_id)] if wanted and is_there else []
