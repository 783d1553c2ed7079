"""One real server with the scripted model, shared by the tests of this folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.scripted import ScriptTokenizer, make_scripted_model
from tests.kit.server import Server, run_server

# Tokens that the cases need beyond single bytes; the lone bytes are pieces of characters.
TOKENS: tuple[str | bytes, ...] = (
    "今",
    "好",
    "山",
    "水",
    b"\xf0\x9f",
    "Hi",
    " <",
    "<end",
    " of",
    " note",
    ">>",
    "\nRes",
    "ult",
    ": ",
    "umé",
    "One",
    " two",
    " three",
    "The",
    " cat",
    " sat",
    "Finished",
    "done",
)


@dataclass
class Scripted:
    """A server whose model says what the prompt tells it to, and its tokens."""

    server: Server
    tokens: ScriptTokenizer

    @property
    def url(self) -> str:
        """The server's address."""
        return self.server.url


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    """The server; it must be idle, with no page in use, after all tests."""
    folder: Path = tmp_path_factory.mktemp("scripted")
    tokens = make_scripted_model(folder, extra_tokens=TOKENS, step_delay_s=0.003)
    flags = ["--allow-scripted-model"]
    with run_server(folder, flags) as server:
        yield Scripted(server, tokens)
        state = server.wait_idle()
        assert state["num_used_pages"] == 0, state
