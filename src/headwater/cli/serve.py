"""`headwater serve`."""

import argparse

from headwater.cli.options import add_config_options, config_from_args
from headwater.errors import ConfigError
from headwater.log import setup_logging

__all__ = ["add_options", "run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The model, and all settings."""
    parser.add_argument("served", nargs="?", metavar="MODEL", help="the same as --model")
    add_config_options(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    if args.served is not None:
        if args.model is not None:
            raise ConfigError("the model is given twice: as an argument and as --model")
        args.model = args.served
    config = config_from_args(args)
    setup_logging(config.logging.log_level, process="server")
    # Imported here: a wrong flag is reported at once, without loading the web framework.
    from headwater.server.run import run_server

    return run_server(config)
