"""`headwater`: serve, chat, generate, models."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from headwater.errors import HeadwaterError
from headwater.version import __version__

__all__ = ["COMMANDS", "main"]

# Command to its module, which has `add_options(parser)` and `run(args) -> int`, and its help.
COMMANDS = {
    "serve": ("headwater.cli.serve", "serve a model over HTTP"),
    "chat": ("headwater.cli.chat", "talk to a model in the terminal"),
    "generate": ("headwater.cli.generate", "answer one prompt and exit"),
    "models": ("headwater.cli.models", "show what can be loaded and what is cached"),
}

_WRONG_USE = 2
_INTERRUPTED = 130


def _parser(command: str | None) -> argparse.ArgumentParser:
    """The parser; only the chosen command's options are loaded."""
    parser = argparse.ArgumentParser(
        prog="headwater", description="A server for language models, on an ordinary CPU."
    )
    parser.add_argument("--version", action="version", version=f"headwater {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text)
        if name == command:
            import_module(module).add_options(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: Arguments; None for the process's own.

    Returns:
        Exit code: 0 when all went well, 2 for a wrong setting or model, 130 after ^C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in words if word in COMMANDS), None)
    parser = _parser(command)
    args = parser.parse_args(words)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        code: int = import_module(COMMANDS[args.command][0]).run(args)
        return code
    except HeadwaterError as err:
        print(f"headwater: {err.message}", file=sys.stderr)
        return _WRONG_USE
    except KeyboardInterrupt:
        return _INTERRUPTED
