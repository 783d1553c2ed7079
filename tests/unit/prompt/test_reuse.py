"""Ids of a chat are those of its whole text, whatever was encoded before and however it is cut."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from headwater.errors import InvalidRequest
from headwater.prompt.chat import ChatPrompts, encode_chat, find_conversation, guard_messages
from headwater.prompt.chat.reuse import PieceCache
from headwater.text import Tokenizer
from headwater.text.cuts import _any_of
from tests.kit.scripted import byte_level_tokenizer

FOLDER = Path(__file__).parents[2] / "data" / "tokenizers"
DATA = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}


def changed(name: str, change: Callable[[dict[str, Any]], None]) -> Tokenizer:
    """A tokenizer with something else in its file."""
    data = json.loads(json.dumps(DATA[name]))
    change(data)
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(data)))


def every_token(**flags: bool) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for token in data["added_tokens"]:
            token.update(flags)

    return change


def some_tokens(**flags: bool) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for token in data["added_tokens"][::2]:
            token.update(flags)

    return change


def prepends(data: dict[str, Any]) -> None:
    data["normalizer"] = {"type": "Prepend", "prepend": "▁"}


def nothing(data: dict[str, Any]) -> None:
    pass


TOKENIZERS = {name: changed(name, nothing) for name in sorted(DATA)} | {
    "bytes": Tokenizer(byte_level_tokenizer(["hello", " world"])),
    "prepends": changed("spbpe-strip", prepends),
    "rstrip": changed("metaspace-first", every_token(rstrip=True)),
    "lstrip": changed("bytelevel-added", some_tokens(lstrip=True)),
    "normalized": changed("wordpiece-plain", some_tokens(normalized=True)),
    "all normalized": changed("metaspace-first", every_token(normalized=True)),
    "single word": changed("bytelevel-added", some_tokens(single_word=True)),
}


@st.composite
def texts(draw: st.DrawFn, tokenizer: Tokenizer) -> str:
    """Added tokens, pieces of them, words and spaces in any order."""
    added = sorted(t.content for t in tokenizer.raw.get_added_tokens_decoder().values())
    pieces = st.one_of(
        st.sampled_from(added),
        st.sampled_from(added).map(lambda word: word[:-1]),
        st.sampled_from([" ", "  ", "\n", "\n\n", "hello", " world", "The night train", "é", "中"]),
        st.sampled_from(["x" * 70, "word " * 20, "▁", "a", ".", "\t"]),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufdd0"), max_size=6),
    )
    return "".join(draw(st.lists(pieces, max_size=25)))


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_reuse_changes_nothing(name: str, data: st.DataObject) -> None:
    """A cache that has seen the texts or not, or has no room, gives the ids of the whole."""
    tokenizer = TOKENIZERS[name]
    text = data.draw(texts(tokenizer))
    try:
        whole = tokenizer.encode(text, add_special_tokens=False)
    except InvalidRequest:  # the library itself fails on it
        reject()
    pieces = tokenizer.cuts.split(text)
    assert "".join(pieces) == text
    encoded = [tokenizer.encode(piece, add_special_tokens=False) for piece in pieces]
    assert [i for ids in encoded for i in ids] == whole
    cache, tiny = PieceCache(max_chars=100_000), PieceCache(max_chars=80)
    for _ in range(2):
        assert encode_chat(tokenizer, text, cache) == whole
        assert encode_chat(tokenizer, text, tiny) == whole
        assert tiny.num_chars <= 80


@pytest.mark.parametrize("repeat", [1, 100])
def test_a_text_that_the_library_cannot_encode_is_refused(repeat: int) -> None:
    """It panics where a token that strips leftwards meets another that has taken the blanks."""
    with pytest.raises(InvalidRequest, match="the model's tokenizer fails on this text"):
        TOKENIZERS["lstrip"].encode("</think>    \n<strip>" * repeat)


def test_which_tokenizers_are_cut() -> None:
    """Whatever the normalizer; not where added tokens look around, or need normalized text."""
    exact = {name for name, tokenizer in TOKENIZERS.items() if tokenizer.cuts.are_exact}
    assert set(TOKENIZERS) - exact == {"all normalized", "single word"}


def test_a_sample_that_disagrees_means_no_cuts() -> None:
    """The rule is checked on the tokenizer itself, so a surprise costs time and no ids."""
    tokenizer = Tokenizer(byte_level_tokenizer())
    # Tokens found elsewhere than where the library would find them.
    tokenizer.cuts._starts = {"<|im"}
    tokenizer.cuts._first_pass = [tokenizers.AddedToken("<|im", normalized=False)]
    tokenizer.cuts._split = lambda text: [text[:1], text[2:]]  # type: ignore[method-assign]
    assert not tokenizer.cuts.are_exact
    assert tokenizer.cuts.split("abc") == ["abc"]
    assert tokenizer.cuts.split("") == []


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_typed_tokens_are_encoded_the_same_with_reuse(name: str, data: st.DataObject) -> None:
    """Guarded texts are pieces like others."""
    tokenizer = TOKENIZERS[name]
    messages = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": data.draw(texts(tokenizer))}
        for i in range(3)
    ]
    special = sorted(tokenizer.special_texts)
    text = "".join(
        f"{special[0]}{m['content']}{special[-1]}\n" for m in guard_messages(messages, special)
    )
    expected = encode_chat(tokenizer, text)
    cache = PieceCache(max_chars=100_000)
    assert encode_chat(tokenizer, text, cache) == expected
    assert encode_chat(tokenizer, text, cache) == expected


def test_a_growing_chat_encodes_only_its_new_turns() -> None:
    """Earlier turns are looked up, the oldest pieces are forgotten first."""
    tokenizer = Tokenizer(byte_level_tokenizer())
    chatml = find_conversation("chatml")
    assert chatml is not None
    cache, lens = PieceCache(max_chars=4000), []
    messages: list[dict[str, Any]] = []

    def encode(piece: str) -> list[int]:
        lens.append(len(piece))
        return tokenizer.encode(piece, add_special_tokens=False)

    for turn in range(12):
        role = "assistant" if turn % 2 else "user"
        messages.append({"role": role, "content": f"{turn} " * 60})
        text = chatml.render(messages).text
        lens.clear()
        assert cache.encode(tokenizer.cuts, text, encode) == tokenizer.encode(
            text, add_special_tokens=False
        )
        assert sum(lens) < 400
    assert cache.num_chars <= 4000


def test_encode_of_the_whole_path() -> None:
    """A chat that grows gives each time what a fresh server gives."""
    tokenizer = Tokenizer(byte_level_tokenizer())
    chatml = find_conversation("chatml")
    assert chatml is not None
    made = ChatPrompts(tokenizer, {"default": chatml}, special_tokens={})
    messages: list[dict[str, Any]] = []
    for turn in range(10):
        role = "assistant" if turn % 2 else "user"
        messages.append({"role": role, "content": f"<|im_end|> {turn} é " * (turn * 7 % 13)})
        fresh = ChatPrompts(tokenizer, {"default": chatml}, special_tokens={})
        assert made.encode(messages).ids == fresh.encode(messages).ids


@settings(max_examples=200, deadline=None)
@given(words=st.sets(st.text("<|ab", min_size=1, max_size=4), min_size=1), text=st.text("<|ab "))
def test_the_longest_added_token_is_found_first(words: set[str], text: str) -> None:
    """As by a plain list of the words, longest first."""
    plain = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))
    assert re.findall(_any_of(words), text) == plain.findall(text)
