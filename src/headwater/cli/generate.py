"""`headwater generate`: one prompt, one answer, printed as it comes."""

import argparse
import sys
from typing import Any

from headwater.cli.options import add_config_options, config_from_args
from headwater.errors import ConfigError
from headwater.log import setup_logging

__all__ = ["add_options", "add_sampling_options", "run", "sampling_values"]


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Flags for sampling parameters."""
    group = parser.add_argument_group("Sampling")
    group.add_argument("--max-new-tokens", type=int, metavar="N", help="default: 256")
    group.add_argument("--temperature", type=float, metavar="T", help="0 is greedy")
    group.add_argument("--top-p", type=float, metavar="P")
    group.add_argument("--seed", type=int, metavar="N", help="repeat an answer exactly")


def sampling_values(args: argparse.Namespace) -> dict[str, Any]:
    """The sampling parameters that were given."""
    values = {
        "max_new_tokens": 256 if args.max_new_tokens is None else args.max_new_tokens,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "sampling_seed": args.seed,
    }
    return {name: value for name, value in values.items() if value is not None}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The prompt, sampling, and the model's settings."""
    parser.add_argument("prompt", nargs="?", help="the prompt; without it standard input is read")
    parser.add_argument("--raw", action="store_true", help="no chat template: continue the text")
    add_sampling_options(parser)
    add_config_options(parser, groups=("model", "scheduler", "logging"))


def run(args: argparse.Namespace) -> int:
    """Print the answer."""
    prompt = args.prompt if args.prompt is not None else sys.stdin.read().rstrip("\n")
    if not prompt:
        raise ConfigError("the prompt is empty")
    config = config_from_args(args, log_level="warning")
    setup_logging(config.logging.log_level, process="engine")
    from headwater.engine import Engine

    with Engine(config) as engine:
        is_chat = not args.raw and engine.client.chat.has_format
        results = engine.generate(
            None if is_chat else prompt,
            sampling_values(args),
            messages=[{"role": "user", "content": prompt}] if is_chat else None,
            stream=True,
        )
        shown = 0
        for result in results:
            print(result["text"][shown:], end="", flush=True)
            shown = len(result["text"])
    print()
    return 0
