"""Flags of the command line, made from `headwater.config`."""

import argparse
from collections.abc import Mapping
from typing import Any

from headwater.config import Config, Flag, config_from_values, flags, parse_flag

__all__ = ["add_config_options", "config_from_args"]


def _help(flag: Flag) -> str:
    default = ",".join(flag.default) if flag.is_list else flag.default
    shown = "" if default in (None, "") else f"; default: {default}"
    return f"{flag.help}{shown} [{flag.env}]".replace("%", "%%")


def add_config_options(
    parser: argparse.ArgumentParser, *, groups: tuple[str, ...] | None = None
) -> None:
    """Add a flag for every setting.

    Args:
        parser: Where.
        groups: Names of the groups of settings; None for all.
    """
    sections: dict[str, argparse._ArgumentGroup] = {}
    for flag in flags():
        if groups is not None and flag.group not in groups:
            continue
        if flag.title not in sections:
            sections[flag.title] = parser.add_argument_group(flag.title)
        options: dict[str, Any] = {"default": None, "help": _help(flag), "dest": flag.name}
        if flag.kind is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["metavar"] = flag.kind.__name__.upper()
        if flag.is_list:
            options |= {"nargs": "+", "action": "extend"}
        if flag.choices:
            options["metavar"] = "{" + ",".join(flag.choices) + "}"
        sections[flag.title].add_argument(flag.option, *flag.aliases, **options)


def config_from_args(args: argparse.Namespace, **more: Any) -> Config:
    """The configuration: flags, then `more`, then the environment, then defaults.

    Args:
        args: Parsed flags.
        more: A command's own values for settings that no flag was given for.

    Raises:
        ConfigError: A value is wrong.
    """
    values: dict[str, Any] = dict(more)
    given: Mapping[str, Any] = vars(args)
    for flag in flags():
        value = given.get(flag.name)
        if value is None:
            continue
        if isinstance(value, list):  # several words, each of which may hold commas
            value = ",".join(value)
        values[flag.name] = (
            parse_flag(flag, value, flag.option) if isinstance(value, str) else value
        )
    return config_from_values(values)
