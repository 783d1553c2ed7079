"""API keys: where they come from and what they open."""

from pathlib import Path

import pytest

from headwater.config import ServerConfig, config_from_values
from headwater.errors import ConfigError
from headwater.server.auth import ApiKeys, read_api_keys


def test_keys_from_flags_and_file(tmp_path: Path) -> None:
    """Both count; empty lines do not."""
    file = tmp_path / "keys"
    file.write_text("three\n\n  four  \n")
    config = ServerConfig(api_key=["one", "two"], api_key_file=str(file))
    assert read_api_keys(config) == ["one", "two", "three", "four"]
    assert read_api_keys(ServerConfig()) == []


@pytest.mark.parametrize("text", ["", "\n \n", None])
def test_a_file_without_keys_is_an_error(tmp_path: Path, text: str | None) -> None:
    """A server that should be closed must not be open by mistake."""
    file = tmp_path / "keys"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError):
        read_api_keys(ServerConfig(api_key_file=str(file)))


def test_keys_that_cannot_be_sent() -> None:
    """Headers are ASCII."""
    with pytest.raises(ConfigError):
        read_api_keys(ServerConfig(api_key=["schlüssel"]))


@pytest.mark.parametrize(
    ("header", "is_right"),
    [
        (b"Bearer one", True),
        (b"bearer two", True),
        (b"Bearer  two ", True),
        (b"Bearer", False),
        (b"Bearer ", False),
        (b"", False),
        (b"one", False),
        (b"Basic one", False),
        (b"Bearer one two", False),
        (b"Bearer on", False),
        (b"Bearer onee", False),
        (b"Bearer \xff\xfe", False),
    ],
)
def test_what_opens(header: bytes, is_right: bool) -> None:
    """One of the keys as a bearer token, and nothing else."""
    assert ApiKeys(["one", "two"]).accept(header) is is_right


def test_secrets_are_not_shown() -> None:
    """`/server_info` and the other processes get the tree without them."""
    config = config_from_values({"api_key": ["hush"], "port": 7}, environ={})
    assert config.server.api_key == ["hush"]
    assert "hush" not in config.to_json()
    assert config.to_dict()["server"]["port"] == 7
