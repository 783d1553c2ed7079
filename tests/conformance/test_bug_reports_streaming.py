"""Streaming faults that users met in other servers, as small cases against the running server."""

from typing import Any

import httpx

from tests.conformance.conftest import Scripted
from tests.conformance.exchange import Exchange, exchange, stream_events


def complete(scripted: Scripted, pieces: list[str | bytes], **fields: Any) -> Exchange:
    """Run a script through /v1/completions, streamed and not."""
    body = {"prompt": scripted.tokens.script(*pieces), "max_tokens": 500, **fields}
    return exchange(f"{scripted.url}/v1/completions", body)


def test_b001_characters_split_over_tokens_come_whole(scripted: Scripted) -> None:
    """An emoji in three tokens is sent once complete, and never as U+FFFD."""
    got = complete(scripted, ["今", " ", b"\xf0\x9f", b"\xa5", b"\xa8", "好"])
    assert got.text == "今 🥨好"
    assert not any("\ufffd" in piece for piece in got.pieces)


def test_b003_bytes_that_never_become_a_character_do_not_hold_the_stream(
    scripted: Scripted,
) -> None:
    """Impossible bytes leave at once as U+FFFD instead of waiting for the end."""
    got = complete(scripted, [b"\xff"] * 400 + ["done"])
    assert got.text == "\ufffd" * 400 + "done"
    assert len(got.pieces) > 100


def test_b005_no_piece_of_a_stop_string_leaves(scripted: Scripted) -> None:
    """Text that may become the stop string is held back."""
    got = complete(scripted, ["Hi", " <", "<end", " of", " note", ">>"], stop=["<<end of note>>"])
    assert got.text == "Hi "
    assert got.finish_reason == "stop"


def test_b007_a_long_stop_string_gives_the_same_text_in_both_modes(scripted: Scripted) -> None:
    """Match and near miss; held text leaves as soon as the prefix fails."""
    hit = complete(scripted, ["a", "\nRes", "ult", ": ", "9"], stop=["\nResult: "])
    assert hit.text == "a"
    miss = complete(scripted, ["a", "\nRes", "umé"], stop=["\nResult: "])
    assert miss.text == "a\nResumé"


def test_b009_a_stop_does_not_make_empty_chunks(scripted: Scripted) -> None:
    """Text that cannot begin the stop string is sent at once, and no chunk is empty."""
    body = {
        "messages": [{"role": "user", "content": "One two three"}],
        "stop": ["QQQQQQ"],
        "max_tokens": 50,
    }
    chunks = stream_events(f"{scripted.url}/v1/chat/completions", body)
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert deltas[0]["role"] == "assistant"
    assert deltas[-1] == {}
    assert all(delta["content"] for delta in deltas[1:-1])
    assert "".join(d.get("content") or "" for d in deltas) == "One two three"
    assert len(deltas) >= 5


def test_b011_logprobs_and_text_of_a_chunk_agree(scripted: Scripted) -> None:
    """While a stop string holds text back, its tokens wait with it."""
    body = {
        "messages": [{"role": "user", "content": "The cat~ sat"}],
        "logprobs": True,
        "top_logprobs": 1,
        "stop": ["~~~~~~"],
        "max_tokens": 50,
    }
    chunks = stream_events(f"{scripted.url}/v1/chat/completions", body)
    tokens = []
    for chunk in chunks:
        choice = chunk["choices"][0]
        entries = (choice.get("logprobs") or {}).get("content") or []
        assert "".join(e["token"] for e in entries) == (choice["delta"].get("content") or "")
        tokens += [e["token"] for e in entries]
    assert tokens == ["The", " cat", "~", " sat"]


def test_b013_no_spaces_between_special_tokens(scripted: Scripted) -> None:
    """Kept special tokens stand side by side when the caller asks for it; skipped ones vanish."""
    body = {
        "input_ids": scripted.tokens.script("<A>", "<B>", "x"),
        "sampling_params": {"skip_special_tokens": False, "spaces_between_special_tokens": False},
    }
    answer = httpx.post(f"{scripted.url}/generate", json=body, timeout=60).json()
    assert answer["text"] == "<A><B>x"
    body["sampling_params"] = {"skip_special_tokens": True}
    assert httpx.post(f"{scripted.url}/generate", json=body, timeout=60).json()["text"] == "x"


def test_b015_a_skipped_stop_token_does_not_cut_real_text(scripted: Scripted) -> None:
    """Only what was appended is trimmed."""
    got = complete(
        scripted, ["Finished", "<|sep|>"], stop_token_ids=[scripted.tokens.id("<|sep|>")]
    )
    assert got.text == "Finished"
    assert got.finish_reason == "stop"


def test_b017_a_failure_inside_a_stream_is_an_error_event(scripted: Scripted) -> None:
    """The stream tells failure from success, and the other requests go on."""
    body = {"prompt": scripted.tokens.script("a", "b", "c", "<|fault|>", "d"), "stream": True}
    response = httpx.post(f"{scripted.url}/v1/completions", json=body, timeout=60)
    events = [line for line in response.text.split("\n\n") if line.startswith("data: {")]
    assert '"error"' in events[-1]
    for word in ('"message"', '"type"', '"param"', '"code"'):
        assert word in events[-1]
    assert not any('"finish_reason":"' in event for event in events)
    assert complete(scripted, ["done"]).text == "done"
