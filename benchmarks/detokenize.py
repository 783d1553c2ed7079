"""Incremental detokenization: microseconds per token against three other ways, in one run.

    python -m benchmarks.detokenize --tokenizers DIR

DIR holds one folder for each tokenizer, with a tokenizer.json (or .json.gz). Compared are: `ours`
(`feed_each`, one id for each stream of a batch), `theirs` (`tokenizers`' own DecodeStream),
`window` (two offsets, our slow twin) and `again` (decode everything at every step). Rounds are
interleaved and the best counts, so that a neighbour's load strikes all alike.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers.decoders import DecodeStream as TheirStream

from headwater.text import DecodeStream, Tokenizer, feed_each, load_tokenizer
from headwater.text.window_stream import WindowStream

TEXTS = {
    "en": "The night train pulled out of the station, and nobody knew how far it would go. ",
    "zh": "夜里九点刚过，火车缓缓驶出车站，车上没有人知道它会开到多远的地方。",  # noqa: RUF001  # the text's own commas
    "hi": "रात नौ बजे के थोड़ी देर बाद रेलगाड़ी स्टेशन से निकली और किसी को अंदाज़ा नहीं था। ",
    "ar": "غادر القطار الليلي المحطة ولم يعرف أحد إلى أين سيذهب. ",
    "emoji": "Team 👩🏽‍🚀👨‍👩‍👧‍👦🏳️‍🌈 says hi 🤷🏽‍♀️! flags 🇯🇵🇧🇷 ",
    "code": "def walk(tree):\n\tfor key, node in sorted(tree.items()):\n\t\tyield key, node\n",
}
Columns = Sequence[Sequence[int]]  # steps, each with one id for every stream


def ours(tokenizer: Tokenizer, columns: Columns, batch: int) -> None:
    """The batch loop of the detokenizer."""
    streams = [DecodeStream(tokenizer) for _ in range(batch)]
    for ids in columns:
        feed_each(streams, ids)


def theirs(tokenizer: Tokenizer, columns: Columns, batch: int) -> None:
    """`tokenizers`' DecodeStream."""
    raw = tokenizer.raw
    streams = [TheirStream(skip_special_tokens=True) for _ in range(batch)]
    for ids in columns:
        for stream, token_id in zip(streams, ids, strict=True):
            stream.step(raw, token_id)


def window(tokenizer: Tokenizer, columns: Columns, batch: int) -> None:
    """Two offsets."""
    streams = [WindowStream(tokenizer.decode, ()) for _ in range(batch)]
    for ids in columns:
        for stream, token_id in zip(streams, ids, strict=True):
            stream.step(token_id)


def again(tokenizer: Tokenizer, columns: Columns, batch: int) -> None:
    """Everything, at every step."""
    seen: list[list[int]] = [[] for _ in range(batch)]
    for ids in columns:
        for known, token_id in zip(seen, ids, strict=True):
            known.append(token_id)
            tokenizer.decode(known)


def best_us(
    ways: Sequence[Callable[[Tokenizer, Columns, int], None]],
    tokenizer: Tokenizer,
    columns: Columns,
    batch: int,
    rounds: int,
) -> list[float]:
    """Best microseconds per token of each way over interleaved rounds."""
    best = [float("inf")] * len(ways)
    for _ in range(rounds):
        for k, way in enumerate(ways):
            start = time.perf_counter()
            way(tokenizer, columns, batch)
            seconds = time.perf_counter() - start
            best[k] = min(best[k], seconds * 1e6 / (len(columns) * batch))
    return best


def columns_of(ids: Sequence[int], num_steps: int, batch: int) -> list[list[int]]:
    """Streams that begin at different places of one text."""
    return [[ids[(step + 7 * k) % len(ids)] for k in range(batch)] for step in range(num_steps)]


def natural(tokenizer: Tokenizer, name: str, rounds: int) -> None:
    """Natural text: batches, and answer lengths."""
    for batch in (1, 32, 256):
        ratios, costs = [], []
        for text in TEXTS.values():
            ids = tokenizer.encode(text * 4, add_special_tokens=False)
            columns = columns_of(ids, max(200, 20_000 // batch // 8), batch)
            mine, peer = best_us([ours, theirs], tokenizer, columns, batch, rounds)
            ratios.append(mine / peer)
            costs.append(mine)
        mean, cost = statistics.geometric_mean(ratios), statistics.geometric_mean(costs)
        worst = max(ratios)
        print(f"{name:16} batch {batch:4}: {cost:6.3f} us/token, {mean:.3f} x DecodeStream "
              f"(worst text {worst:.3f})")  # fmt: skip
    ids = tokenizer.encode(TEXTS["en"] * 8, add_special_tokens=False)
    for length in (100, 1000, 4000):
        columns = columns_of(ids, length, 1)
        ways = [ours, theirs, window] + ([again] if length <= 1000 else [])
        costs = best_us(ways, tokenizer, columns, 1, 2)
        shown = ", ".join(
            f"{way.__name__} {cost:.2f}" for way, cost in zip(ways, costs, strict=True)
        )
        print(f"{name:16} length {length:5}: us/token {shown}")


def adversarial(tokenizer: Tokenizer, name: str) -> None:
    """Growth from 200 to 3,200 tokens on streams that make window schemes quadratic."""
    streams: dict[str, list[int]] = {}
    special = sorted(tokenizer.special_ids)
    if special:
        streams["skipped special"] = [special[0]]
    literal = tokenizer.encode("\ufffd", add_special_tokens=False)
    if literal:
        streams["U+FFFD"] = literal
    for label, text in (("half characters", "🥨"), ("byte tokens", "🫠")):
        ids = tokenizer.encode(text, add_special_tokens=False)
        if len(ids) > 1:
            streams[label] = ids[:-1] if label == "half characters" else ids
    for label, ids in streams.items():
        costs = [best_us([ours], tokenizer, columns_of(ids, n, 1), 1, 5)[0] for n in (200, 3200)]
        print(f"{name:16} {label:16}: {costs[1]:.3f} us/token, growth x {costs[1] / costs[0]:.2f}")
    prompt = tokenizer.encode(TEXTS["en"], add_special_tokens=False) * 4000
    start = time.perf_counter()
    DecodeStream(tokenizer, prompt_ids=prompt[:32_000]).feed(prompt[:1])
    print(f"{name:16} first step after 32,000 prompt ids: "
          f"{(time.perf_counter() - start) * 1e3:.3f} ms")  # fmt: skip


def main() -> None:
    """Measure every tokenizer of the folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tokenizers", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="names of folders")
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    for path in sorted(args.tokenizers.glob("*/tokenizer.json*")):
        name = path.parent.name
        if args.only and name not in args.only:
            continue
        tokenizer = load_tokenizer(path)
        start = time.perf_counter()
        tokenizer.automaton(skip_special_tokens=True)
        print(f"{name:16} self-check {(time.perf_counter() - start) * 1e3:.1f} ms")
        natural(tokenizer, name, args.rounds)
        adversarial(tokenizer, name)


if __name__ == "__main__":
    main()
