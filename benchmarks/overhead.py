"""The server's own cost: the scripted model computes nothing, so all that is left is ours.

    python -m benchmarks.overhead --concurrency 1,8,32

Run it from the repository's root. Prints throughput, latencies, the CPU time of all server
processes for each token, and how it is shared among them.
"""

import argparse
import tempfile
from pathlib import Path

import psutil
from benchmarks.serve import Figures, Load, measure, median_of, table
from tests.kit.scripted import make_scripted_model
from tests.kit.server import run_server


def cpu_by_process(pid: int) -> dict[str, float]:
    """CPU seconds of the front end and each of its children so far."""
    parent = psutil.Process(pid)
    found = {"front end": parent}
    for child in parent.children(recursive=True):
        words = child.cmdline()
        found[words[words.index("-m") + 1].removeprefix("headwater.")] = child
    return {name: sum(process.cpu_times()[:2]) for name, process in found.items()}


def shares(before: dict[str, float], after: dict[str, float]) -> str:
    """Which part of the CPU time each process took."""
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    total = sum(spent.values()) or 1.0
    return ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in spent.items())


def main() -> None:
    """Start a server on the scripted model, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--requests-per-stream", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    load = Load(40, args.max_tokens, args.requests_per_stream)
    with tempfile.TemporaryDirectory() as folder:
        make_scripted_model(Path(folder))
        flags = ["--allow-scripted-model", "--max-running-requests", "256"]
        with run_server(Path(folder), flags) as server:
            pid = server.process.pid
            measure(load, server.url, 1, seed=-1)  # warm up
            rows: list[Figures] = []
            for concurrency in map(int, args.concurrency.split(",")):
                before = cpu_by_process(pid)
                runs = [measure(load, server.url, concurrency, k, pid) for k in range(args.rounds)]
                rows.append(median_of(runs))
                print(f"{concurrency} streams: {shares(before, cpu_by_process(pid))}")
    print(table(rows))


if __name__ == "__main__":
    main()
