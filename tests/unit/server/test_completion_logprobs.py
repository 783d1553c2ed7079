"""The four arrays of `/v1/completions`: tokens join to the text, offsets point into it."""

import re

from headwater.messages.text import TokenLogprob, TokenLogprobs
from headwater.server.openai.completion_logprobs import CompletionLogprobs, token_string


def record(raw: bytes, token_id: int = 1, *top: bytes) -> TokenLogprobs:
    """A token with alternatives."""
    alternatives = [TokenLogprob(-2.0, 7, None, other) for other in top]
    return TokenLogprobs(TokenLogprob(-1.0, token_id, None, raw), alternatives)


def joined(tokens: list[str]) -> str:
    """The text that the tokens spell."""
    data = b""
    for token in tokens:
        if token.startswith("bytes:"):
            data += bytes(int(code, 16) for code in re.findall(r"\\x(..)", token))
        else:
            data += token.encode()
    return data.decode()


def test_pieces_of_a_character() -> None:
    """They are shown as bytes, and stand where their character stands."""
    text = "a🥨b"
    writer = CompletionLogprobs(())
    records = [record(b"a"), record(b"\xf0\x9f"), record(b"\xa5"), record(b"\xa8b"), record(b"!")]
    out = writer.render(records, text + "!")
    assert out["tokens"][:3] == ["a", "bytes:\\xf0\\x9f", "bytes:\\xa5"]
    assert joined(out["tokens"]) == text + "!"
    assert out["text_offset"] == [0, 1, 1, 1, 3]


def test_offsets_go_on_over_deltas() -> None:
    """Each delta begins where the last one ended."""
    writer = CompletionLogprobs(())
    assert writer.render([record(b"ab")], "ab")["text_offset"] == [0]
    assert writer.render([record(b"c"), record(b"d")], "cd")["text_offset"] == [2, 3]


def test_tokens_that_the_text_leaves_out_take_no_room() -> None:
    """They are shown by name."""
    writer = CompletionLogprobs({9})
    out = writer.render([record(b"<s>", 9), record(b"a"), record(b"b")], "ab")
    assert out["tokens"] == ["<s>", "a", "b"]
    assert out["text_offset"] == [0, 0, 1]


def test_the_space_that_a_decoder_drops() -> None:
    """The first word has none when the text has none; later ones and real ones keep it."""
    out = CompletionLogprobs({9}).render([record(b"<s>", 9), record(b" a"), record(b" b")], "a b")
    assert out["tokens"] == ["<s>", "a", " b"]
    assert out["text_offset"] == [0, 0, 1]
    out = CompletionLogprobs(()).render([record(b" a"), record(b" b")], " a b")
    assert out["tokens"] == [" a", " b"]


def test_the_token_is_among_its_alternatives() -> None:
    """And two pieces of characters do not become one key."""
    out = CompletionLogprobs(()).render([record(b"a", 1, b"\xe4", b"\xe5")], "a")
    assert out["top_logprobs"] == [{"bytes:\\xe4": -2.0, "bytes:\\xe5": -2.0, "a": -1.0}]


def test_no_bytes_at_all() -> None:
    """An id without a token is an empty string."""
    assert token_string(TokenLogprob(-1.0, 5, None, None)) == ""
