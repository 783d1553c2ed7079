"""The server's own cost: the scripted model computes nothing, so all that is left is ours.

    python -m benchmarks.overhead --concurrency 1,8,32

Run it from the repository's root. Prints throughput, latencies and the CPU time of all server
processes for each token.
"""

import argparse
import tempfile
from pathlib import Path

from benchmarks.serve import Figures, measure, median_of, table
from tests.kit.scripted import make_scripted_model
from tests.kit.server import run_server


def main() -> None:
    """Start a server on the scripted model, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--requests-per-stream", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    args.model, args.prompt_words, args.server_pid = "default", 40, None
    with tempfile.TemporaryDirectory() as folder:
        make_scripted_model(Path(folder))
        with run_server(Path(folder), ["--allow-scripted-model"]) as server:
            args.url, args.server_pid = server.url, server.process.pid
            measure(args, server.url, 1, seed=-1)  # warm up
            rows: list[Figures] = []
            for concurrency in map(int, args.concurrency.split(",")):
                runs = [measure(args, server.url, concurrency, seed=k) for k in range(args.rounds)]
                rows.append(median_of(runs))
    print(table(rows))


if __name__ == "__main__":
    main()
