"""The whole server against llama.cpp's own: same GGUF file, same client, same run.

    pip install 'headwater[bench]'
    python -m benchmarks.llamacpp --repeat 3 --json figures.json

Run it from the repository's root. The servers are started in turn, never both at once, the other
one first in every second round, and medians over the rounds are compared. Both get as many threads,
streams and cache tokens, no prompt cache, and the same prompts. Each is measured with concurrent
streams (greedy answers of a fixed length) and with long prompts, one at a time, for one token each.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import psutil
from benchmarks.serve import Figures, Load, measure, median_of

from headwater.config import default_cache_dir
from headwater.sources.pypi import DEFAULT_MODEL
from headwater.sources.resolve import resolve_model

READY = re.compile(r"ready at (http://[^\s,]+)")
PROMPTS = "prompts"
MOST_BUSY_PERCENT = 5.0
SHOWN = (
    ("tokens_per_s", "tokens/s"),
    ("ttft_p50_ms", "TTFT p50 ms"),
    ("itl_p50_ms", "ITL p50 ms"),
)
SHOWN_OF_PROMPTS = (("prompt_tokens_per_s", "prompt tokens/s"),)

Run = dict[str, Figures]
"""The figures of one start of a server, by what was sent."""


class Log:
    """What a server prints, read so that it never waits for us."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.lines: list[str] = []
        self.url: str | None = None
        self._output = process.stdout
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._output or ():
            self.lines.append(line.rstrip())
            match = READY.search(line)
            if match and not self.url:
                self.url = match[1]


@contextmanager
def running(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Iterator[str]:
    """A server until the block ends; gives its address when it is ready."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        env={**os.environ, **env},
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        yield wait_ready(process, Log(process), time.monotonic() + timeout_s)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_ready(process: "subprocess.Popen[str]", log: Log, deadline: float) -> str:
    """The address of a server that has said that it is ready and answers `/health`."""
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if log.url and httpx.get(f"{log.url}/health", trust_env=False).status_code == 200:
                return log.url
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    command = shlex.join(map(str, process.args if isinstance(process.args, list) else []))
    raise SystemExit("\n".join([f"did not start: {command}", *log.lines[-20:]]))


def commands(args: argparse.Namespace) -> dict[str, list[str]]:
    """How the two servers are started."""
    slots, tokens = str(args.parallel), str(args.parallel * args.ctx_size)
    ours = [sys.executable, "-m", "headwater", "serve", str(args.model), "--port", "0"]
    ours += ["--num-threads", str(args.threads), "--max-running-requests", slots]
    ours += ["--max-total-tokens", tokens, "--disable-radix-cache"]
    theirs = [sys.executable, "-m", "benchmarks.llamacpp_server", str(args.llamacpp_model)]
    theirs += ["--threads", str(args.threads), "--parallel", slots]
    theirs += ["--ctx-size", str(args.ctx_size)]
    return {
        "headwater": ours + shlex.split(args.headwater_flags),
        "llama.cpp": theirs + shlex.split(args.llamacpp_flags),
    }


def measure_server(args: argparse.Namespace, url: str, seed: int) -> Run:
    """All figures of a server that has just started."""
    answers = Load(args.answer_prompt_words, args.max_tokens, args.requests_per_stream)
    prompts = Load(args.prompt_words, 1, args.prompts)
    measure(Load(max_tokens=8, requests_per_stream=1), url, args.parallel, seed=-1)  # warm up
    measure(Load(args.prompt_words, 1, 1), url, 1, seed=-1)
    run = {str(n): measure(answers, url, n, seed) for n in args.concurrency}
    return run | {PROMPTS: measure(prompts, url, 1, seed)}


def note_others(turn: int, name: str) -> Iterator[str]:
    """A note when other processes use the cores; servers suffer from that in unequal measure."""
    busy = psutil.cpu_percent(interval=1.0)
    print(f"round {turn}: {name}; other processes use {busy:.0f} % of the cores", file=sys.stderr)
    if busy > MOST_BUSY_PERCENT:
        yield f"not idle: {busy:.0f} % of the cores were busy before {name} in round {turn}"


def measure_both(args: argparse.Namespace, notes: list[str]) -> dict[str, list[Run]]:
    """Start and measure the servers in turn, as often as asked."""
    servers, policy = commands(args), args.llamacpp_wait_policy
    envs = {"headwater": {}, "llama.cpp": {"OMP_WAIT_POLICY": policy} if policy else {}}
    runs: dict[str, list[Run]] = {name: [] for name in servers}
    for turn in range(args.repeat):
        # The other one first in every second round: a drift of the machine cancels out.
        for name in list(servers)[:: -1 if turn % 2 else 1]:
            notes += note_others(turn + 1, name)
            with running(servers[name], envs[name], args.start_timeout_s) as url:
                runs[name].append(measure_server(args, url, seed=turn))
    return runs


def compare(runs: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """One row for each figure: ours, theirs, and ours over theirs, of medians."""
    (our_runs, their_runs), rows = runs.values(), []
    for load in our_runs[0]:
        ours, theirs = (median_of([run[load] for run in some]) for some in (our_runs, their_runs))
        for field, title in SHOWN_OF_PROMPTS if load == PROMPTS else SHOWN:
            pair = getattr(ours, field), getattr(theirs, field)
            ratio = pair[0] / pair[1] if pair[1] else float("nan")
            row = {"load": load, "figure": title, "headwater": pair[0], "llama.cpp": pair[1]}
            rows.append({**row, "ratio": ratio})
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text."""
    lines = [f"{'streams':>8} {'':<16} {'headwater':>10} {'llama.cpp':>10} {'ratio':>7}"]
    for row in rows:
        start = f"{row['load']:>8} {row['figure']:<16} {row['headwater']:>10.1f}"
        lines.append(f"{start} {row['llama.cpp']:>10.1f} {row['ratio']:>7.2f}")
    return "\n".join(lines)


def warnings(runs: dict[str, list[Run]]) -> Iterator[str]:
    """What makes the comparison unequal: failed requests, or another number of tokens."""
    (our_runs, their_runs) = runs.values()
    for ours, theirs in zip(our_runs, their_runs, strict=True):
        for load in ours:
            for what in ("num_errors", "prompt_tokens", "output_tokens"):
                pair = getattr(ours[load], what), getattr(theirs[load], what)
                if pair[0] != pair[1] or (what == "num_errors" and any(pair)):
                    yield f"unequal: {load}, {what}: headwater {pair[0]}, llama.cpp {pair[1]}"


def describe(args: argparse.Namespace) -> dict[str, Any]:
    """What was compared; the peer's instruction sets, since its wheel is built for any machine."""
    import xllamacpp

    return {
        "headwater": importlib.metadata.version("headwater"),
        "xllamacpp": importlib.metadata.version("xllamacpp"),
        "xllamacpp_build": xllamacpp.get_system_info().strip(" |"),
        "model": args.model.name,
        "llamacpp_model": args.llamacpp_model.name,
        **{
            name: getattr(args, name)
            for name in (
                *("threads", "parallel", "ctx_size", "repeat", "max_tokens", "prompt_words"),
                *("answer_prompt_words", "requests_per_stream", "prompts"),
                *("headwater_flags", "llamacpp_flags", "llamacpp_wait_policy"),
            )
        },
    }


def parse_args() -> argparse.Namespace:
    """The command line, with the models found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default=DEFAULT_MODEL, help="a .gguf file or pypi:...")
    parser.add_argument("--llamacpp-model", help="another file for llama.cpp")
    parser.add_argument("--headwater-flags", default="", help="more flags of headwater serve")
    parser.add_argument("--llamacpp-flags", default="", help="more flags of llamacpp_server")
    parser.add_argument(
        "--llamacpp-wait-policy",
        choices=("active", "passive"),
        help="how its threads wait for each other: OMP_WAIT_POLICY; default: as it ships, which "
        "spins: faster on idle cores, far slower where another process needs one",
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--parallel", type=int, default=32, help="most streams at once")
    parser.add_argument("--ctx-size", type=int, default=1536, help="cache tokens of a stream")
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--requests-per-stream", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--answer-prompt-words", type=int, default=10)
    parser.add_argument("--prompt-words", type=int, default=980, help="of the long prompts")
    parser.add_argument("--prompts", type=int, default=8, help="number of long prompts")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--start-timeout-s", type=float, default=300.0)
    parser.add_argument("--json", type=Path, help="write all figures here")
    args = parser.parse_args()
    if importlib.util.find_spec("xllamacpp") is None:
        parser.error("llama.cpp is not installed: pip install 'headwater[bench]'")
    cache = Path(default_cache_dir())
    args.llamacpp_model = resolve_model(args.llamacpp_model or args.model, cache).path
    args.model = resolve_model(args.model, cache).path
    args.concurrency = [int(text) for text in args.concurrency.split(",")]
    if max(args.concurrency) > args.parallel:
        parser.error("--parallel must be at least the greatest --concurrency")
    return args


def main() -> None:
    """Measure both, print the table, write JSON when asked."""
    args = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the server too
    notes: list[str] = []
    settings, runs = describe(args), measure_both(args, notes)
    rows = compare(runs)
    notes += warnings(runs)
    print(f"xllamacpp {settings['xllamacpp']}, {settings['xllamacpp_build']}")
    print("\n".join([table(rows), *notes]))
    if args.json:
        kept = {
            name: [{load: asdict(figures) for load, figures in run.items()} for run in some]
            for name, some in runs.items()
        }
        content = {"settings": settings, "rows": rows, "notes": notes, "runs": kept}
        args.json.write_text(json.dumps(content, indent=2))


if __name__ == "__main__":
    main()
