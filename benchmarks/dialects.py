"""What the OpenAI layer costs: its endpoints against native `/generate`, on a scripted model.

    python -m benchmarks.dialects --concurrency 1,32,256

Run it from the repository's root. The client only counts events, so that it costs little; rounds of
the routes are interleaved, and medians count. CPU is that of all server processes.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.overhead import cpu_by_process
from tests.kit.scripted import ScriptTokenizer, make_scripted_model
from tests.kit.server import run_server

ROUTES = ("/generate", "/v1/completions", "/v1/chat/completions")


def body_of(route: str, tokens: ScriptTokenizer, num_tokens: int, stream: bool) -> dict[str, Any]:
    """A request whose answer has so many tokens; all prompts are equally long."""
    text = ("abcdefghijklmnopqrstuvwxyz" * (num_tokens // 26 + 1))[:num_tokens]
    script = tokens.script(*text)
    if route == "/generate":
        params = {"max_new_tokens": num_tokens}
        return {
            "input_ids": script,
            "sampling_params": params,
            "stream": stream,
            "incremental": True,
        }
    if route == "/v1/completions":
        return {"prompt": script, "max_tokens": num_tokens, "stream": stream}
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "max_tokens": num_tokens, "stream": stream}


async def send(url: str, route: str, body: bytes) -> None:
    """One request on its own connection, read to its end."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    head = (
        f"POST {route} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    first = await reader.readline()
    assert b" 200 " in first, first
    while await reader.read(1 << 16):
        pass
    writer.close()


async def load(url: str, route: str, body: bytes, streams: int, requests: int) -> float:
    """Seconds until so many requests, `streams` at a time, are answered."""
    left = iter(range(requests))

    async def one() -> None:
        for _ in left:
            await send(url, route, body)

    start = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(streams)))
    return time.perf_counter() - start


def measure(args: argparse.Namespace, *, num_tokens: int, stream: bool) -> None:
    """One table: every route at every number of streams."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = make_scripted_model(Path(folder))
        flags = ["--allow-scripted-model", "--max-running-requests", "256"]
        with run_server(Path(folder), flags) as server:
            for streams in map(int, args.concurrency.split(",")):
                count = max(4, streams) * (2 if stream else 8)
                rows: dict[str, list[tuple[float, float]]] = {route: [] for route in ROUTES}
                for _ in range(args.rounds + 1):
                    for route in ROUTES:
                        body = json.dumps(body_of(route, tokens, num_tokens, stream)).encode()
                        before = sum(cpu_by_process(server.process.pid).values())
                        seconds = asyncio.run(load(server.url, route, body, streams, count))
                        cpu = sum(cpu_by_process(server.process.pid).values()) - before
                        rows[route].append((count / seconds, cpu / count))
                show(rows, streams, num_tokens, stream)


def show(
    rows: dict[str, list[tuple[float, float]]], streams: int, num_tokens: int, stream: bool
) -> None:
    """Medians, without the first round, and ratios to the native route."""
    medians = {
        route: [statistics.median(column) for column in zip(*figures[1:], strict=True)]
        for route, figures in rows.items()
    }
    native = medians["/generate"]
    for route, (rate, cpu) in medians.items():
        shown = f"{rate * num_tokens:9.0f} tok/s" if stream else f"{rate:9.0f} req/s"
        print(f"{streams:4} streams  {route:22} {shown}  x {rate / native[0]:.2f}   "
              f"{cpu * 1e6 / (num_tokens if stream else 1):7.1f} us CPU each  "
              f"x {cpu / native[1]:.2f}")  # fmt: skip


def main() -> None:
    """Streams of 400 tokens, then unstreamed answers of 8."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--concurrency", default="1,32,256")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print("streams of 400 tokens")
    measure(args, num_tokens=400, stream=True)
    print("unstreamed answers of 8 tokens")
    measure(args, num_tokens=8, stream=False)


if __name__ == "__main__":
    main()
