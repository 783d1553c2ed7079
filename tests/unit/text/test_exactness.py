"""The stream is `decode` of the whole: cases of every kind, and random ids of every decoder kind.

tests/data/detokenization.json holds cases, with what each of their tokenizers needs of its
vocabulary.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models

from headwater.text import DecodeStream, Tokenizer, feed_each
from tests.kit.scripted import byte_level_tokenizer

DATA = json.loads(
    (Path(__file__).parents[2] / "data" / "detokenization.json").read_text(encoding="utf-8")
)
TOKENIZERS = {
    name: Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(value)))
    for name, value in DATA["tokenizers"].items()
}


@pytest.mark.parametrize("number", range(len(DATA["cases"])))
def test_cases(number: int) -> None:
    """Joined and flushed it is the text, every partial is its beginning, and nothing comes late."""
    case: dict[str, Any] = DATA["cases"][number]
    stream = DecodeStream(
        TOKENIZERS[case["tokenizer"]],
        skip_special_tokens=case["skip_special_tokens"],
        prompt_ids=case.get("prompt_ids", []),
    )
    expected, sent = case["expected"], ""
    for token_id, count in zip(case["ids"], case["chars_after"], strict=True):
        sent += stream.feed([token_id])
        assert expected.startswith(sent), case["kind"]
        assert len(sent) >= count, case["kind"]
    assert sent + stream.flush() == expected
    assert stream.text == expected


def word_level(decoder: Any, words: list[str]) -> Tokenizer:
    """A tokenizer that has just these tokens, the first of them special."""
    raw = tokenizers.Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, words[0]))
    if decoder is not None:
        raw.decoder = decoder
    raw.add_special_tokens([AddedToken(words[0], special=True)])
    raw.add_tokens([AddedToken(words[1])])
    return Tokenizer(raw)


WORDS = ["<s>", "<t>", "a", " b", "▁c", "▁▁", "c▁", "##d", "é", "\ufffd", ".", "n't", "'s", "x</w>"]
BYTES = [f"<0x{byte:02X}>" for byte in (0x20, 0x41, 0xC3, 0xA9, 0xF0, 0x9F, 0x98, 0x80, 0xFF)]
SPACE = decoders.Replace("▁", " ")
KINDS: dict[str, Any] = {
    "none": None,
    "wordpiece": decoders.WordPiece(prefix="##", cleanup=False),
    "wordpiece-cleanup": decoders.WordPiece(prefix="##", cleanup=True),
    "metaspace-always": decoders.Metaspace(prepend_scheme="always"),
    "metaspace-first": decoders.Metaspace(prepend_scheme="first"),
    "metaspace-never": decoders.Metaspace(prepend_scheme="never"),
    "bpe-suffix": decoders.BPEDecoder(suffix="</w>"),
    "llama": decoders.Sequence(
        [SPACE, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    ),
    "gemma": decoders.Sequence([SPACE, decoders.ByteFallback(), decoders.Fuse()]),
    "unigram-fallback": decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), SPACE, decoders.Strip(" ", 2, 0)]
    ),
}


def kinds() -> Iterator[tuple[str, Tokenizer]]:
    """A tokenizer of each decoder kind, small enough that any ids are a cruel test."""
    for name, decoder in KINDS.items():
        yield name, word_level(decoder, WORDS + BYTES)
    yield "byte-level", Tokenizer(byte_level_tokenizer(["今", "é", b"\xf0\x9f", b"\x98a", " x"]))


TABLES = dict(kinds())


@pytest.mark.parametrize("name", list(TABLES))
def test_the_fast_path_is_taken(name: str) -> None:
    """The decoder is understood, and its automaton agrees with `decode` on the sample."""
    for skip in (True, False):
        assert TABLES[name].automaton(skip_special_tokens=skip) is not None


@pytest.mark.parametrize("name", list(TABLES))
@settings(deadline=None, max_examples=150)
@given(data=st.data(), skip=st.booleans())
def test_any_ids_in_any_grouping(name: str, data: st.DataObject, skip: bool) -> None:
    """P1 and P2 for random ids, unknown ones included: the whole, and its beginnings only."""
    tokenizer = TABLES[name]
    ids = data.draw(st.lists(st.integers(-1, tokenizer.vocab_size + 1), max_size=25))
    expected = tokenizer.decode(ids, skip_special_tokens=skip)
    stream, sent, at = DecodeStream(tokenizer, skip_special_tokens=skip), "", 0
    while at < len(ids):
        step = data.draw(st.integers(1, 4))
        sent += stream.feed(ids[at : at + step])
        at += step
        assert expected.startswith(sent)
    assert sent + stream.flush() == expected


@pytest.mark.parametrize("name", list(TABLES))
def test_a_prompt_is_context_only(name: str) -> None:
    """The answer is what `decode(prompt + ids)` adds, where that only adds."""
    tokenizer, rng = TABLES[name], random.Random(1)
    for _ in range(400):
        prompt = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randint(1, 8))]
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randint(1, 8))]
        before, whole = tokenizer.decode(prompt), tokenizer.decode(prompt + ids)
        if not whole.startswith(before) or before.endswith("\ufffd"):
            continue
        if name == "bpe-suffix" or not before:
            continue  # a suffix's space comes from the prompt; an empty text is no context
        stream = DecodeStream(tokenizer, prompt_ids=prompt)
        assert stream.feed(ids) + stream.flush() == whole[len(before) :], (prompt, ids)


def test_a_batch_step_equals_single_steps() -> None:
    """`feed_each` is the same streams, one id each."""
    tokenizer, rng = TABLES["byte-level"], random.Random(2)
    columns = [[rng.randrange(262) for _ in range(50)] for _ in range(9)]
    streams = [DecodeStream(tokenizer) for _ in columns]
    texts = [""] * 9
    for step in range(50):
        pieces = feed_each(streams, [column[step] for column in columns])
        texts = [text + piece for text, piece in zip(texts, pieces, strict=True)]
    for column, stream, text in zip(columns, streams, texts, strict=True):
        assert text + stream.flush() == tokenizer.decode(column) == stream.text


@pytest.mark.parametrize("tail", [b"\xff", b"\xf0\x9f", b"\xef\xbf\xbd"])
def test_never_more_than_three_bytes_are_held(tail: bytes) -> None:
    """B003: bytes that cannot become a character leave at once."""
    tokenizer = TABLES["byte-level"]
    stream, sent = DecodeStream(tokenizer), ""
    data = tail * 100
    for count, byte in enumerate(data, 1):
        sent += stream.feed([byte])
        assert len(sent) >= len(data[: max(count - 3, 0)].decode("utf-8", "replace")) - 1
    assert sent + stream.flush() == data.decode("utf-8", "replace")


WINDOW = word_level(
    decoders.Sequence([decoders.Replace(Regex("zz+"), "z"), decoders.Fuse()]), [*WORDS, "z", "zq"]
)


def test_other_decoders_take_the_window() -> None:
    """A decoder that is not understood is decoded window by window, and natural ids come right."""
    assert WINDOW.automaton(skip_special_tokens=True) is None
    rng = random.Random(3)
    for _ in range(200):
        ids = [rng.randrange(2, 13) for _ in range(20)]
        stream = DecodeStream(WINDOW)
        pieces = [stream.feed([token_id]) for token_id in ids]
        assert "".join(pieces) + stream.flush() == WINDOW.decode(ids)


def test_the_window_stays_small() -> None:
    """Endless U+FFFD and endless silence do not make it grow."""
    for token_id in (9, 0):
        stream = DecodeStream(WINDOW)
        for _ in range(3000):
            stream.feed([token_id])
        window = stream._window._ids  # type: ignore[union-attr]  # it has a window
        assert len(window) < 100


def test_a_wrong_plan_is_found_out() -> None:
    """A tokenizer whose decoder does not do what its JSON says falls back to the window."""
    tokenizer = word_level(decoders.WordPiece(prefix="##", cleanup=True), WORDS)
    honest = tokenizer.decode

    def lying(ids: list[int], *, skip_special_tokens: bool = True) -> str:
        return honest(ids, skip_special_tokens=skip_special_tokens).replace("a", "A")

    tokenizer.decode = lying  # type: ignore[method-assign, assignment]
    assert tokenizer.automaton(skip_special_tokens=True) is None


def test_token_texts_and_bytes() -> None:
    """A piece of a character keeps its real bytes, and its text says so."""
    tokenizer = TABLES["byte-level"]
    assert tokenizer.token_bytes(0xF0) == b"\xf0"
    assert tokenizer.token_text(0xF0) == "\ufffd"
    assert TABLES["llama"].token_bytes(4) == b" c"
    assert TABLES["llama"].token_bytes(16) == b"\xc3"
    assert tokenizer.token_bytes(10**6) == b""
