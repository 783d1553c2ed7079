"""Where a text can be cut so that its pieces' ids, joined, are the ids of the whole.

The library takes added tokens out of a text first and works on each stretch between them alone, so
a cut just before an added token changes nothing, whatever the normalizer and the pre-tokenizer do:
the piece begins with the token as the whole would go on with it. Not so before tokens that swallow
the spaces in front of them, that are looked for in normalized text, or that must stand alone.
"""

import itertools
import re
from collections.abc import Collection
from functools import cached_property

import tokenizers

__all__ = ["SafeCuts"]

_SAMPLE = ("", " ", "a", "Hello, world.", "\n\n", "  x ", "née 中文")


class SafeCuts:
    """The places of one tokenizer where cutting is exact.

    Args:
        raw: The library's object.
    """

    def __init__(self, raw: tokenizers.Tokenizer) -> None:
        self._raw = raw
        added = raw.get_added_tokens_decoder().values()
        # All that the library looks for in its first pass: at one place the longest wins.
        self._first_pass = [token for token in added if token.content and not token.normalized]
        self._starts = {token.content for token in self._first_pass if not token.lstrip}

    @cached_property
    def are_exact(self) -> bool:
        """Whether there are such places; trusted after it has held on a sample."""
        if not self._starts or any(token.single_word for token in self._first_pass):
            return False
        return all(self._holds(text) for text in self._samples())

    def split(self, text: str) -> list[str]:
        """The pieces of a text; one piece when nothing is known to be exact."""
        if not self.are_exact:
            return [text] if text else []
        return self._split(text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(_any_of({token.content for token in self._first_pass}))

    def _split(self, text: str) -> list[str]:
        matches = self._pattern.finditer(text)
        cuts = [m.start() for m in matches if m[0] in self._starts and m.start() > 0]
        return [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)]) if a < b]

    def _samples(self) -> list[str]:
        tokens = sorted(self._starts)[:3] + sorted(self._starts)[-2:]
        between = itertools.cycle(_SAMPLE)
        order = [*tokens, *reversed(tokens), *tokens]
        return ["".join(f"{next(between)}{token}" for token in order[k:]) for k in range(5)]

    def _holds(self, text: str) -> bool:
        def ids(piece: str) -> list[int]:
            return list(self._raw.encode(piece, add_special_tokens=False).ids)

        return [i for piece in self._split(text) for i in ids(piece)] == ids(text)


def _any_of(words: Collection[str]) -> str:
    """A pattern for the longest of some words, whose branches begin differently.

    A plain list of a thousand words would be tried from its start at every `<` of a text.
    """
    low, high = min(words), max(words)
    num_shared = next((i for i, c in enumerate(low) if high[i : i + 1] != c), len(low))
    prefix = low[:num_shared]
    rests = {word[len(prefix) :] for word in words}
    branches: dict[str, set[str]] = {}
    for rest in sorted(rests - {""}):
        branches.setdefault(rest[0], set()).add(rest)
    if not branches:
        return re.escape(prefix)
    body = "|".join(_any_of(branch) for branch in branches.values())
    return f"{re.escape(prefix)}(?:{body}){'?' if '' in rests else ''}"
