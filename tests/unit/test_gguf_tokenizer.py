"""Tokenizers built from GGUF metadata, on small vocabularies written here."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ModelLoadError
from headwater.text.gguf_tokenizer import tokenizer_from_gguf
from headwater.text.tokenizer import Tokenizer
from tests.kit.scripted import byte_level_tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
WORDS = ("the", " ox", "at", "cat", "12", "Ä", " \n", "\n\n", "''", "'s", "é")
SPECIAL = ("<|begin|>", "<|end|>", "<tool>")


def byte_level_fields(pre: str = "gpt-2", **more: Any) -> dict[str, Any]:
    """Metadata of a byte-level tokenizer: all bytes, a few words, two control tokens, one tag."""
    vocab = byte_level_tokenizer(WORDS, special=()).get_vocab()
    tokens = [*sorted(vocab, key=vocab.__getitem__), *SPECIAL]
    pieces = tokens[256 : -len(SPECIAL)]
    merges = [f"{piece[:-1]} {piece[-1]}" for piece in pieces]
    types = [NORMAL] * (len(tokens) - 3) + [CONTROL, CONTROL, USER_DEFINED]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": sorted(merges, key=len),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": len(tokens) - 3,
        "tokenizer.ggml.eos_token_id": len(tokens) - 2,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def pieces_of(tokenizer: Tokenizer, text: str) -> list[str]:
    """The tokens of a text, each decoded by itself."""
    return [tokenizer.token_text(i) for i in tokenizer.encode(text, add_special_tokens=False)]


@given(st.text())
def test_byte_level_text_comes_back(text: str) -> None:
    """Whatever the text, decoding gives it again."""
    tokenizer = BYTE_LEVEL
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


BYTE_LEVEL = tokenizer_from_gguf(byte_level_fields())


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "the ox12's", ["the", " ox", "12", "'s"]),
        ("gpt-2", "x \n", ["x", " \n"]),
        ("default", "the12", ["the", "12"]),
        ("smollm", "the12", ["the", "1", "2"]),
        ("starcoder", " 12", [" ", "1", "2"]),
        ("llama-bpe", "12", ["12"]),
        ("qwen2", "12", ["1", "2"]),
        ("tekken", "12", ["1", "2"]),
        # Only NFC makes one letter of a letter and its accent; Qwen's tokenizer does that.
        ("qwen2", "e\u0301", ["é"]),
        ("llama-bpe", "e\u0301", ["e", "\ufffd", "\ufffd"]),
        # Merges alone lead to c + at; these families look for the whole word first.
        ("gpt-2", "cat", ["c", "at"]),
        ("qwen2", "cat", ["c", "at"]),
        ("llama-bpe", "cat", ["cat"]),
        ("tekken", "cat", ["cat"]),
        ("gpt-2", "''s", ["''", "s"]),
        ("gpt-2", "\n\nthe", ["\n", "\n", "the"]),
        ("llama-bpe", "\n\nthe", ["\n\n", "the"]),
    ],
)
def test_each_family_splits_in_its_own_way(pre: str, text: str, expected: list[str]) -> None:
    """Digits, spaces, line ends and quotes, as that family's tokenizer.json has them."""
    assert pieces_of(tokenizer_from_gguf(byte_level_fields(pre)), text) == expected


def test_control_tokens_are_special_and_user_defined_ones_are_not() -> None:
    """Both are found in a text whole; only control tokens are left out of the answer."""
    ids = BYTE_LEVEL.encode("the<|begin|> ox<tool><|end|>")
    assert [BYTE_LEVEL.token_text(i) for i in ids] == [
        "the",
        "<|begin|>",
        " ox",
        "<tool>",
        "<|end|>",
    ]
    assert BYTE_LEVEL.decode(ids) == "the ox<tool>"
    assert {BYTE_LEVEL.token_text(i) for i in BYTE_LEVEL.special_ids} == {"<|begin|>", "<|end|>"}
    assert len(BYTE_LEVEL.encode_plain("<|begin|>")) == len("<|begin|>")


@pytest.mark.parametrize(
    ("pre", "more", "expected"),
    [
        ("gpt-2", {}, ["the"]),
        ("gpt-2", {"add_bos_token": True}, ["<|begin|>", "the"]),
        ("gpt-2", {"add_bos_token": True, "add_eos_token": True}, ["<|begin|>", "the", "<|end|>"]),
        ("gpt-2", {"add_eos_token": True}, ["the", "<|end|>"]),
        ("gpt-2", {"add_bos_token": True, "bos_token_id": 10**6}, ["the"]),
        ("llama-bpe", {}, ["<|begin|>", "the"]),
        ("llama-bpe", {"add_bos_token": False}, ["the"]),
    ],
)
def test_begin_and_end_tokens(pre: str, more: dict[str, Any], expected: list[str]) -> None:
    """As the file says; where it says nothing, as its family does."""
    tokenizer = tokenizer_from_gguf(byte_level_fields(pre, **more))
    assert [tokenizer.token_text(i) for i in tokenizer.encode("the")] == expected
    assert pieces_of(tokenizer, "the") == ["the"]


# Best first; ids and scores are given in this order, after the special and byte pieces.
PIECES = ["▁▁", "th", "in", "▁the", "the", "▁in", "ing", "▁th", "abc", "bc", "ab", "▁a"]
LETTERS = ["▁", *"abcefghint"]


def sentencepiece_fields(**more: Any) -> dict[str, Any]:
    """Metadata of a SentencePiece BPE model with a few pieces and all bytes."""
    head = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    head += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    # "<s" could become the control token if control tokens took part in merges.
    body = [*PIECES, "<s", *LETTERS, "<", "s", ">"]
    tokens = [token for token, _ in head] + body
    scores = [0.0] * len(head) + [-float(rank) for rank in range(len(body))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [kind for _, kind in head] + [NORMAL] * len(body),
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def naive_sentencepiece(text: str, scores: dict[str, float]) -> list[str]:
    """Merge the best-scored pair, the leftmost of equals, until no pair is a piece."""
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        pairs = [
            (-scores[parts[i] + parts[i + 1]], i)
            for i in range(len(parts) - 1)
            if parts[i] + parts[i + 1] in scores
        ]
        if not pairs:
            return parts
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def tokens_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Vocabulary spellings."""
    return [str(tokenizer.raw.id_to_token(i)) for i in ids]


def test_sentencepiece_merges_by_score() -> None:
    """Against the naive algorithm, on texts of pieces and letters in any order."""
    fields = sentencepiece_fields()
    tokenizer = tokenizer_from_gguf(fields)
    first = fields["tokenizer.ggml.tokens"].index(PIECES[0])
    scores = dict(
        zip(
            fields["tokenizer.ggml.tokens"][first:],
            fields["tokenizer.ggml.scores"][first:],
            strict=True,
        )
    )
    rng = random.Random(0)
    parts = [piece.replace("▁", " ") for piece in (*PIECES, *LETTERS)]
    for _ in range(300):
        text = "".join(rng.choices(parts, k=rng.randint(1, 12)))
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokens_of(tokenizer, ids) == naive_sentencepiece(text, scores)
        assert tokenizer.decode(ids) == text


def test_sentencepiece_bytes_stand_for_what_has_no_piece() -> None:
    """An unknown letter becomes its bytes, and those become the letter again."""
    tokenizer = tokenizer_from_gguf(sentencepiece_fields())
    ids = tokenizer.encode("a ß", add_special_tokens=False)
    assert tokens_of(tokenizer, ids) == ["▁a", "▁", "<0xC3>", "<0x9F>"]
    assert tokenizer.decode(ids) == "a ß"
    assert tokenizer.token_bytes(ids[-1]) == b"\x9f"


def test_sentencepiece_begin_token_and_prefix_space() -> None:
    """BOS unless the file says no; a space before the text unless the file says no."""
    tokenizer = tokenizer_from_gguf(sentencepiece_fields())
    assert tokens_of(tokenizer, tokenizer.encode("the")) == ["<s>", "▁the"]
    assert tokens_of(tokenizer, tokenizer.encode("")) == ["<s>"]
    assert tokenizer.decode(tokenizer.encode(" the")) == " the"
    bare = tokenizer_from_gguf(sentencepiece_fields(add_space_prefix=False, add_bos_token=False))
    assert tokens_of(bare, bare.encode("the")) == ["the"]
    assert bare.decode(bare.encode(" the")) == " the"


def test_sentencepiece_control_tokens_come_from_no_merge() -> None:
    """Plain text that spells a control token stays text."""
    tokenizer = tokenizer_from_gguf(sentencepiece_fields())
    assert tokens_of(tokenizer, tokenizer.encode_plain("<s>")) == ["▁", "<s", ">"]
    special = tokens_of(tokenizer, tokenizer.encode("a</s><unk>"))
    assert special == ["<s>", "▁a", "</s>", "<unk>"]
    assert tokenizer.special_ids == {0, 1, 2}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "no tokenizer"),
        ({"tokenizer.ggml.tokens": []}, "no tokenizer"),
        (sentencepiece_fields(model="bert"), "'bert' is not supported"),
        (sentencepiece_fields(model=["gpt2"]), "not supported"),
        (byte_level_fields("unheard-of"), "'unheard-of' is not supported; known are .*qwen2"),
        (byte_level_fields(merges=["a"]), "broken"),
        (byte_level_fields(merges=["a zz"]), "broken"),
        (byte_level_fields(tokens=[1, 2]), "broken"),
        (byte_level_fields(tokens="text", token_type=3), "broken"),
        (sentencepiece_fields(scores=[]), "no scores"),
        (sentencepiece_fields(scores=[0.0]), "no scores"),
        (sentencepiece_fields(unknown_token_id=10**6), "broken"),
        (sentencepiece_fields(token_type=[1]), "broken"),
    ],
)
def test_broken_metadata_is_a_load_error(fields: dict[str, Any], says: str) -> None:
    """Metadata of a file is input: it can be of any type and length."""
    with pytest.raises(ModelLoadError, match=says):
        tokenizer_from_gguf(fields)
