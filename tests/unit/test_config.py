"""The configuration tree: flags, environment, checks, and the way to a child process."""

import argparse

import pytest

from headwater.cli.main import main
from headwater.cli.options import add_config_options, config_from_args
from headwater.config import Config, config_from_values, flags
from headwater.errors import ConfigError


def parse(*words: str) -> Config:
    """The configuration of a command line."""
    parser = argparse.ArgumentParser()
    add_config_options(parser)
    return config_from_args(parser.parse_args(words))


def test_every_flag_has_help_and_a_default_that_passes_its_own_check() -> None:
    """A wrong default would be refused when it is written out."""
    for flag in flags():
        assert flag.help
        if flag.check is not None:
            assert flag.check[0](flag.default), flag.name
        if flag.choices:
            assert flag.default in flag.choices


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the environment, then the default."""
    monkeypatch.setenv("HEADWATER_PORT", "1234")
    monkeypatch.setenv("HEADWATER_PAGE_SIZE", "8")
    config = parse("--port", "99", "--disable-radix-cache")
    assert config.server.port == 99
    assert config.scheduler.page_size == 8
    assert config.scheduler.disable_radix_cache is True
    assert config.server.host == "127.0.0.1"
    assert parse("--no-disable-radix-cache").scheduler.disable_radix_cache is False


def test_lists_come_separated_by_commas() -> None:
    """Several served names."""
    assert parse("--served-model-name", "a, b").model.served_model_name == ["a", "b"]


def test_the_spellings_of_other_servers() -> None:
    """Who comes from one of them need not look these up."""
    config = parse("--model-path", "m", "--max-model-len", "99")
    assert (config.model.model, config.model.context_length) == ("m", 99)


def test_the_model_may_stand_alone_but_once(capsys: pytest.CaptureFixture[str]) -> None:
    """`serve MODEL` is `serve --model MODEL`."""
    assert main(["serve", "/nowhere"]) == 2
    assert "/nowhere" in capsys.readouterr().err
    assert main(["serve", "a", "--model", "b"]) == 2
    assert "given twice" in capsys.readouterr().err


def test_json_round_trip() -> None:
    """What a child reads is what the parent had."""
    config = parse("--port", "7", "--context-length", "99", "--served-model-name", "x")
    assert Config.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"port": "x"}, "port"),
        ({"port": 70000}, "port"),
        ({"port": True}, "port"),
        ({"page_size": 0}, "page_size"),
        ({"dtype": "int3"}, "dtype"),
        ({"context_length": 0}, "context_length"),
        ({"disable_radix_cache": 1}, "disable_radix_cache"),
        ({"shutdown_timeout_s": -1}, "shutdown_timeout_s"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_wrong_values_name_their_setting(values: dict[str, object], name: str) -> None:
    """From Python as from the command line."""
    with pytest.raises(ConfigError) as caught:
        config_from_values(values, environ={})
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("name", "value"), [("HEADWATER_PORT", "x"), ("HEADWATER_DISABLE_RADIX_CACHE", "maybe")]
)
def test_wrong_environment_values_name_the_variable(name: str, value: str) -> None:
    """So that the user finds where it is set."""
    with pytest.raises(ConfigError, match=name):
        config_from_values({}, environ={name: value})
