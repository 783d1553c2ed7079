"""The two-offset stream against `tokenizers`' own decode of the whole."""

import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from headwater.text import DecodeStream, Tokenizer


def byte_tokenizer() -> Tokenizer:
    """A byte-level tokenizer: one token per byte, id order as in the byte alphabet."""
    vocab = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    raw = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return Tokenizer(raw)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.integers(1, 5))
def test_pieces_join_to_the_decoded_whole(text: str, group: int) -> None:
    """P1: pieces joined equal the text, for any grouping of the ids."""
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode(text)
    stream = DecodeStream(tokenizer)
    pieces = [stream.feed(ids[i : i + group]) for i in range(0, len(ids), group)]
    pieces.append(stream.flush())
    assert "".join(pieces) == tokenizer.decode(ids) == text == stream.text


def test_no_half_character_is_streamed() -> None:
    """B001: a character is text only once all its bytes are in."""
    tokenizer = byte_tokenizer()
    stream = DecodeStream(tokenizer)
    pieces = [stream.feed([i]) for i in tokenizer.encode("今 🥨好")]
    assert [p for p in pieces if p] == ["今", " ", "🥨", "好"]
    assert stream.flush() == ""


def test_incomplete_character_is_flushed() -> None:
    """At the end everything held back leaves, as `decode` spells it."""
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode("x🥨")[:-1]
    stream = DecodeStream(tokenizer)
    assert stream.feed(ids) + stream.flush() == tokenizer.decode(ids)
