"""llama.cpp's own HTTP server, from the wheel `xllamacpp`, until standard input ends.

    python -m benchmarks.llamacpp_server MODEL.gguf --threads 2 --parallel 32 --ctx-size 1536

Constructing `xllamacpp.Server` loads the model, warms it up and starts the C++ server on threads of
this process; the Python interpreter takes no part in a request. Nothing is kept between requests:
no prompt cache, neither in the slots nor in memory.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import xllamacpp


def make_params(args: argparse.Namespace) -> Any:
    """llama.cpp's parameters; those that are not named keep llama.cpp's defaults."""
    params = xllamacpp.CommonParams()
    params.model.path = str(args.model)
    params.port = 0
    params.n_parallel = args.parallel
    params.n_ctx = args.parallel * args.ctx_size  # shared out evenly among the slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
    params.cache_prompt = params.cache_idle_slots = False
    params.cache_ram_mib = 0
    params.fit_params = False  # would shrink the context when memory seems short
    params.verbosity = 2  # warnings; a line for each request would cost it time
    for name, _, value in (text.partition("=") for text in args.set):
        if not hasattr(params, name):
            raise SystemExit(f"llama.cpp has no parameter {name!r}")
        setattr(params, name, json.loads(value))
    return params


def main() -> None:
    """Serve, say where, wait."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--parallel", type=int, default=32, help="slots")
    parser.add_argument("--ctx-size", type=int, default=1536, help="tokens of a slot")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=JSON", help="a field of CommonParams"
    )
    server = xllamacpp.Server(make_params(parser.parse_args()))
    print(f"ready at {server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
