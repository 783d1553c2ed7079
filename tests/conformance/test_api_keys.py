"""A server that asks for a key."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from openai import OpenAI

from tests.kit.scripted import make_scripted_model
from tests.kit.server import Server, run_server


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two names, and three keys from flags and a file."""
    folder = tmp_path_factory.mktemp("closed")
    make_scripted_model(folder)
    file: Path = folder / "keys"
    file.write_text("third-key\n")
    flags = ["--allow-scripted-model", "--served-model-name", "first", "second"]
    flags += ["--api-key", "first-key", "second-key", "--api-key-file", str(file)]
    with run_server(folder, flags) as server:
        yield server


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/generate"),
        ("GET", "/server_info"),
        ("POST", "/flush_cache"),
        ("GET", "/nothing"),
        ("GET", "/docs"),
    ],
)
@pytest.mark.parametrize("header", [{}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}])
def test_no_key_no_answer(closed: Server, method: str, path: str, header: dict[str, str]) -> None:
    """401 with an error object, before anything is read."""
    response = httpx.request(method, f"{closed.url}{path}", headers=header)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("key", ["first-key", "second-key", "third-key"])
def test_every_key_opens(closed: Server, key: str) -> None:
    """With either header, and the official client."""
    models = f"{closed.url}/v1/models"
    assert httpx.get(models, headers={"authorization": f"Bearer {key}"}).status_code == 200
    assert httpx.get(models, headers={"x-api-key": key}).status_code == 200
    with OpenAI(base_url=f"{closed.url}/v1", api_key=key) as client:
        answer = client.chat.completions.create(
            model="second", messages=[{"role": "user", "content": "ab"}]
        )
        assert answer.model == "second"
        assert [model.id for model in client.models.list()] == ["first", "second"]


def test_the_client_sees_its_own_error(closed: Server) -> None:
    """AuthenticationError."""
    with (
        OpenAI(base_url=f"{closed.url}/v1", api_key="wrong") as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


def test_health_is_open_and_keys_are_not_shown(closed: Server) -> None:
    """Load balancers have no key; nobody sees one."""
    assert httpx.get(f"{closed.url}/health").status_code == 200
    headers = {"authorization": "Bearer first-key"}
    info = httpx.get(f"{closed.url}/server_info", headers=headers).text
    assert "first-key" not in info
    assert "third-key" not in info
    assert not any("-key" in line for line in closed.lines)


@pytest.mark.parametrize("end", ["", "/", "/v1"])
def test_the_terminal_chat_sends_its_key(closed: Server, end: str) -> None:
    """From the variable that the server reads as well; with the address in either form."""
    done = _chat(closed.url + end, {"HEADWATER_API_KEY": "second-key,third-key"})
    assert done.stderr == ""
    assert done.stdout.strip()
    assert done.returncode == 0


def test_the_terminal_chat_says_why_it_got_no_answer(closed: Server) -> None:
    """The error's own words, not its JSON."""
    done = _chat(closed.url, {"HEADWATER_API_KEY": ""})
    assert "401: a valid API key is needed" in done.stderr
    assert "{" not in done.stderr
    assert done.returncode == 1


def _chat(url: str, environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headwater", "chat", "--url", url, "--max-new-tokens", "4"],
        input="Hi",
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
