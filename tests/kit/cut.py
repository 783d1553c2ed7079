"""`cut()`: the executable form of "right for any cut of the input"."""

import random
from collections.abc import Callable, Sequence
from typing import Protocol


class Consumer(Protocol):
    """Anything incremental: `feed()` pieces, then `flush()` once."""

    def feed(self, piece: str, /) -> str: ...

    def flush(self) -> str: ...


def cut(text: str, factory: Callable[[], Consumer], *, num_random: int = 50) -> str:
    """Feed `text` whole, at every single cut, per character and at random triples of cuts.

    Returns the joined output, after asserting that it is the same for every cut.
    """

    def run(pieces: Sequence[str]) -> str:
        consumer = factory()
        return "".join(consumer.feed(p) for p in pieces) + consumer.flush()

    whole = run([text])
    assert run(list(text)) == whole
    for at in range(len(text) + 1):
        assert run([text[:at], text[at:]]) == whole, f"cut at {at}"
    rng = random.Random(0)
    for _ in range(num_random):
        a, b, c = sorted(rng.randint(0, len(text)) for _ in range(3))
        assert run([text[:a], text[a:b], text[b:c], text[c:]]) == whole, f"cut at {a}, {b}, {c}"
    return whole
