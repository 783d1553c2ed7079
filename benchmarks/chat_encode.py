"""Encoding a chat that grows turn by turn, with and without reuse of earlier turns, in one run.

    python -m benchmarks.chat_encode --tokenizers DIR

DIR holds one folder for each tokenizer, with a tokenizer.json (or .json.gz). A conversation of 20
turns is rendered as a template would with the tokenizer's own special tokens, and encoded after
each turn, as a client that sends the whole conversation each time makes a server do. Rounds are
interleaved, each with a new conversation and an empty cache, and the median counts.
"""

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.detokenize import TEXTS

from headwater.prompt.chat import encode_chat
from headwater.prompt.chat.reuse import PieceCache
from headwater.text import Tokenizer, load_tokenizer

NUM_TURNS = 20


def conversation(tokenizer: Tokenizer, seed: int, num_words: int) -> list[str]:
    """Prompts of a growing conversation."""
    rng = random.Random(seed)
    words = " ".join(TEXTS.values()).split()
    special = sorted(tokenizer.special_texts)
    opens, closes = special[0], special[-1]
    prompts, text = [], ""
    for turn in range(NUM_TURNS):
        said = " ".join(rng.choices(words, k=num_words))
        text += f"{opens}{'assistant' if turn % 2 else 'user'}\n{said}{closes}\n"
        prompts.append(f"{text}{opens}assistant\n")
    return prompts


def seconds(tokenizer: Tokenizer, prompts: Sequence[str], cache: PieceCache | None) -> float:
    """Time to encode all prompts."""
    start = time.perf_counter()
    for text in prompts:
        encode_chat(tokenizer, text, cache)
    return time.perf_counter() - start


def measure(name: str, tokenizer: Tokenizer, rounds: int) -> None:
    """Print milliseconds of a conversation both ways."""
    assert tokenizer.cuts.are_exact, name
    for num_words in (30, 300):
        whole, reused = [], []
        for seed in range(rounds):
            prompts = conversation(tokenizer, seed, num_words)
            ways: list[tuple[list[float], PieceCache | None]] = [
                (whole, None),
                (reused, PieceCache(max_chars=4_000_000)),
            ]
            for times, cache in ways if seed % 2 else reversed(ways):
                times.append(seconds(tokenizer, prompts, cache))
        ratio = statistics.median(a / b for a, b in zip(whole, reused, strict=True))
        print(f"{name:16} {num_words:4} words a turn, last prompt {len(prompts[-1]):6} characters: "
              f"whole {statistics.median(whole) * 1e3:8.2f} ms, "
              f"reused {statistics.median(reused) * 1e3:7.2f} ms, {ratio:.1f} x")  # fmt: skip


def main() -> None:
    """Measure every tokenizer of the folder that has special tokens."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tokenizers", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="names of folders")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    for path in sorted(args.tokenizers.glob("*/tokenizer.json*")):
        if not args.only or path.parent.name in args.only:
            tokenizer = load_tokenizer(path)
            if tokenizer.special_texts:
                measure(path.parent.name, tokenizer, args.rounds)


if __name__ == "__main__":
    main()
