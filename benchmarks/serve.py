"""Load on an OpenAI-compatible server: throughput, time to first token, inter-token latency.

    python benchmarks/serve.py --url http://127.0.0.1:30000 --concurrency 1,8,32
    python benchmarks/serve.py --url http://127.0.0.1:30000 --vs http://127.0.0.1:8080

Sends streaming `/v1/completions` requests, `concurrency` at a time. With `--vs` the two servers are
measured in turn, round by round, and the ratio of their medians is printed, so that a change of
the machine's load strikes both. `--server-pid` adds the CPU time of that process and its children
for each token, which the client's own cost does not disturb (needs psutil).
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

WORDS = (
    "river",
    "stone",
    "light",
    "harbor",
    "engine",
    "paper",
    "winter",
    "signal",
    "market",
    "garden",
    "cloud",
    "copper",
    "window",
    "letter",
    "bridge",
    "forest",
    "silver",
    "number",
    "island",
    "question",
    "morning",
    "people",
)


@dataclass(frozen=True)
class Load:
    """What one run sends: for each stream, so many requests of one size."""

    prompt_words: int = 40
    max_tokens: int = 64
    requests_per_stream: int = 2
    model: str = "default"


@dataclass
class Sample:
    """One request: when its pieces came, in seconds, and how many tokens it gave."""

    sent_at: float
    arrivals: list[float] = field(default_factory=list)
    num_tokens: int = 0
    prompt_tokens: int = 0
    error: str | None = None


@dataclass
class Figures:
    """What one run of one concurrency gave; times in milliseconds."""

    url: str
    concurrency: int
    num_requests: int
    num_errors: int
    prompt_tokens: int
    output_tokens: int
    tokens_per_s: float
    prompt_tokens_per_s: float
    requests_per_s: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    e2e_p50_ms: float
    cpu_us_per_token: float | None = None


def make_prompt(rng: random.Random, num_words: int) -> str:
    """A prompt that no other request shares, so that prefix caches do not help."""
    return f"{rng.randrange(10**9)}: " + " ".join(rng.choice(WORDS) for _ in range(num_words))


async def run_one(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> Sample:
    """Send one streaming request and note when its pieces come."""
    sample = Sample(sent_at=time.perf_counter())
    buffer = b""
    try:
        async with client.stream("POST", f"{url}/v1/completions", json=body) as response:
            if response.status_code != 200:
                sample.error = (await response.aread()).decode(errors="replace")[:300]
                return sample
            async for data in response.aiter_bytes():
                now = time.perf_counter()
                *frames, buffer = (buffer + data).split(b"\n\n")
                for frame in frames:
                    read_frame(sample, frame, now)
    except httpx.HTTPError as err:
        sample.error = repr(err)
    return sample


def read_frame(sample: Sample, frame: bytes, now: float) -> None:
    """Note one server-sent event."""
    if not frame.startswith(b"data: {"):
        return
    event = json.loads(frame[6:])
    if event.get("error"):
        sample.error = str(event["error"])[:300]
    if event.get("usage"):
        sample.num_tokens = event["usage"]["completion_tokens"]
        sample.prompt_tokens = event["usage"]["prompt_tokens"]
    if any(choice.get("text") for choice in event.get("choices") or ()):
        sample.arrivals.append(now)


async def run_load(
    url: str, bodies: Sequence[dict[str, Any]], concurrency: int
) -> tuple[list[Sample], float]:
    """Send all bodies, `concurrency` at a time; return the samples and the seconds it took."""
    todo = iter(bodies)
    samples: list[Sample] = []
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(timeout=600, limits=limits, trust_env=False) as client:

        async def stream() -> None:
            for body in todo:
                samples.append(await run_one(client, url, body))

        start = time.perf_counter()
        await asyncio.gather(*(stream() for _ in range(concurrency)))
        return samples, time.perf_counter() - start


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie (nearest rank); NaN without values."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summarize(url: str, concurrency: int, samples: Sequence[Sample], seconds: float) -> Figures:
    """Figures of one run; failed requests count as errors only."""
    done = [s for s in samples if s.error is None]
    good = [s for s in done if s.arrivals]  # an answer of one token may have no text
    ttft = [(s.arrivals[0] - s.sent_at) * 1e3 for s in good]
    # A piece may hold several tokens, so the gap is per token: time after the first piece over
    # the tokens that came after it.
    itl = [
        (s.arrivals[-1] - s.arrivals[0]) * 1e3 / (s.num_tokens - 1)
        for s in good
        if s.num_tokens > 1
    ]
    tokens, prompt_tokens = sum(s.num_tokens for s in done), sum(s.prompt_tokens for s in done)
    return Figures(
        url=url,
        concurrency=concurrency,
        num_requests=len(samples),
        num_errors=len(samples) - len(done),
        prompt_tokens=prompt_tokens,
        output_tokens=tokens,
        tokens_per_s=tokens / seconds,
        prompt_tokens_per_s=prompt_tokens / seconds,
        requests_per_s=len(done) / seconds,
        ttft_p50_ms=percentile(ttft, 0.5),
        ttft_p99_ms=percentile(ttft, 0.99),
        itl_p50_ms=percentile(itl, 0.5),
        itl_p99_ms=percentile(itl, 0.99),
        e2e_p50_ms=percentile([(s.arrivals[-1] - s.sent_at) * 1e3 for s in good], 0.5),
    )


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its children so far."""
    import psutil

    parent = psutil.Process(pid)
    times = [p.cpu_times() for p in (parent, *parent.children(recursive=True))]
    return float(sum(t.user + t.system for t in times))


def make_bodies(load: Load, count: int, seed: int) -> list[dict[str, Any]]:
    """Requests with greedy answers of a fixed length, each with its own prompt."""
    rng = random.Random(seed)
    fixed = {
        "model": load.model,
        "max_tokens": load.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return [{**fixed, "prompt": make_prompt(rng, load.prompt_words)} for _ in range(count)]


def measure(
    load: Load, url: str, concurrency: int, seed: int, server_pid: int | None = None
) -> Figures:
    """One run against one server; with its process id, also the CPU time of a token."""
    bodies = make_bodies(load, concurrency * load.requests_per_stream, seed)
    before = cpu_seconds(server_pid) if server_pid else 0.0
    samples, seconds = asyncio.run(run_load(url, bodies, concurrency))
    figures = summarize(url, concurrency, samples, seconds)
    if server_pid:
        spent = cpu_seconds(server_pid) - before
        figures.cpu_us_per_token = spent * 1e6 / max(figures.output_tokens, 1)
    for sample in samples:
        if sample.error is not None:
            print(f"error from {url}: {sample.error}")
            break
    return figures


COLUMNS = (
    ("concurrency", "streams", "{:d}"),
    ("num_errors", "errors", "{:d}"),
    ("tokens_per_s", "tok/s", "{:.1f}"),
    ("requests_per_s", "req/s", "{:.2f}"),
    ("ttft_p50_ms", "TTFT p50 ms", "{:.1f}"),
    ("ttft_p99_ms", "p99", "{:.1f}"),
    ("itl_p50_ms", "ITL p50 ms", "{:.2f}"),
    ("itl_p99_ms", "p99", "{:.2f}"),
    ("e2e_p50_ms", "e2e p50 ms", "{:.0f}"),
    ("cpu_us_per_token", "CPU us/tok", "{:.0f}"),
)


def table(rows: Sequence[Figures]) -> str:
    """The figures as text."""
    lines = [" ".join(title.rjust(12) for _, title, _ in COLUMNS) + "  server"]
    for row in rows:
        values = [(getattr(row, name), form) for name, _, form in COLUMNS]
        cells = ["-" if value is None else form.format(value) for value, form in values]
        lines.append(" ".join(cell.rjust(12) for cell in cells) + f"  {row.url}")
    return "\n".join(lines)


def median_of(runs: Sequence[Figures]) -> Figures:
    """Field-wise median of several runs of the same thing."""
    merged = asdict(runs[0])
    for name, value in merged.items():
        if isinstance(value, float):
            merged[name] = statistics.median(getattr(run, name) for run in runs)
    merged["num_errors"] = sum(run.num_errors for run in runs)
    return Figures(**merged)


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--url", default="http://127.0.0.1:30000")
    parser.add_argument("--vs", help="another server, measured in the same run")
    parser.add_argument("--model", default="default")
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--requests-per-stream", type=int, default=2)
    parser.add_argument("--prompt-words", type=int, default=40)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server-pid", type=int, help="report CPU time of this process tree")
    parser.add_argument("--json", type=Path, help="write all figures here")
    return parser.parse_args()


def main() -> None:
    """Measure, print the table, write JSON when asked."""
    args = parse_args()
    urls = [args.url] + ([args.vs] if args.vs else [])
    load = Load(args.prompt_words, args.max_tokens, args.requests_per_stream, args.model)
    for url in urls:
        measure(load, url, 1, seed=-1)  # warm up
    rows = []
    for concurrency in map(int, args.concurrency.split(",")):
        runs: dict[str, list[Figures]] = {url: [] for url in urls}
        for turn in range(args.rounds):
            for url in urls:
                pid = args.server_pid if url == args.url else None
                runs[url].append(measure(load, url, concurrency, turn, pid))
        rows += [median_of(runs[url]) for url in urls]
    print(table(rows))
    if args.vs:
        for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
            ratio = ours.tokens_per_s / theirs.tokens_per_s
            ttft = ours.ttft_p50_ms / theirs.ttft_p50_ms
            print(f"{ours.concurrency} streams: tokens/s x {ratio:.2f}, TTFT x {ttft:.2f}")
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))


if __name__ == "__main__":
    main()
