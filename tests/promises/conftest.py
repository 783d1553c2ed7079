"""Real servers with a tiny random model, shared by the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.server import Server, run_server
from tests.kit.tiny_models import make_tiny_model

SETTINGS = ["--num-threads", "1", "--chunked-prefill-size", "64"]


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tiny random Llama and a byte-level tokenizer."""
    folder = tmp_path_factory.mktemp("tiny")
    make_tiny_model(folder, context_length=4096)
    return folder


@pytest.fixture(scope="session")
def roomy(tiny_dir: Path) -> Iterator[Server]:
    """A server whose KV pool is never full."""
    with run_server(tiny_dir, [*SETTINGS, "--max-total-tokens", "16384"]) as server:
        yield server
        state = server.wait_idle()
        assert state["num_used_pages"] == 0, state


@pytest.fixture(scope="session")
def cramped(tiny_dir: Path) -> Iterator[Server]:
    """A server whose KV pool holds a few requests, so that it must retract."""
    with run_server(tiny_dir, [*SETTINGS, "--max-total-tokens", "400"]) as server:
        yield server
        state = server.wait_idle()
        assert state["num_used_pages"] == 0, state


@pytest.fixture(scope="session")
def uncached(tiny_dir: Path) -> Iterator[Server]:
    """A server without prefix cache."""
    flags = ["--max-total-tokens", "16384", "--disable-radix-cache"]
    with run_server(tiny_dir, [*SETTINGS, *flags]) as server:
        yield server
