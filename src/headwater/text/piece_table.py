"""Id to text, ready made, for one tokenizer; shared by all its streams and filled as ids are seen.

A full table would cost up to seconds at the start; an entry costs a microsecond once.
"""

import random
from collections.abc import Sequence
from functools import cached_property

import tokenizers

from headwater.text.decoder_plan import DecoderPlan, byte_level_bytes

__all__ = ["PieceTable", "byte_of"]

_MAX_ID = (1 << 32) - 1


def byte_of(token: str) -> int | None:
    """The byte of a token `<0xNN>`, or None."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            return None
    return None


class PieceTable:
    """What each id of a tokenizer stands for, with or without special tokens.

    Args:
        raw: The tokenizer.
        plan: Its decoder's plan.
        skip_special_tokens: Special tokens are no text.

    Attributes:
        plan: The decoder's plan.
        ready: Id to text, for ids whose text needs no look at their neighbours (later than first).
        data: Byte-level: id to bytes, for ids whose bytes are no text by themselves.
        run: Byte fallback: id to byte.
        nothing: Ids without text: skipped specials, ids outside the vocabulary.
    """

    def __init__(
        self, raw: tokenizers.Tokenizer, plan: DecoderPlan, *, skip_special_tokens: bool
    ) -> None:
        self._raw = raw
        self.plan = plan
        self._added = raw.get_added_tokens_decoder()
        self._skip = skip_special_tokens
        self.ready: dict[int, str] = {}
        self.data: dict[int, bytes] = {}
        self.run: dict[int, int] = {}
        self.nothing: set[int] = set()

    def token(self, token_id: int) -> str | None:
        """The vocabulary's spelling of an id that has text, else None."""
        if not 0 <= token_id <= _MAX_ID:
            return None
        added = self._added.get(token_id)
        if added is not None:
            return None if added.special and self._skip else added.content
        token: str | None = self._raw.id_to_token(token_id)
        return token

    def learn(self, token_id: int) -> None:
        """Put an id that is seen for the first time where it belongs."""
        token = self.token(token_id)
        if token is None:
            self.nothing.add(token_id)
        elif self.plan.is_byte_level:
            data = byte_level_bytes(token)
            try:
                self.ready[token_id] = data.decode("utf-8")
            except UnicodeDecodeError:
                self.data[token_id] = data
        elif self.plan.has_byte_fallback and (byte := byte_of(self._replaced(token))) is not None:
            self.run[token_id] = byte
        elif not (self.plan.suffix and self.plan.suffix in token):
            self.ready[token_id] = self.plan.later(token)

    def _replaced(self, token: str) -> str:
        for old, new in self.plan.replace_token:
            token = token.replace(old, new)
        return token

    @cached_property
    def sample(self) -> list[list[int]]:
        """Id sequences on which a stream must agree with the tokenizer before it is trusted."""
        rng = random.Random(0)
        size = max(self._raw.get_vocab_size(with_added_tokens=True), 1)
        special = sorted(self._added)[:40]
        singles: list[list[int]] = [[rng.randrange(size)] for _ in range(60)]
        mixed = [[rng.randrange(size) for _ in range(rng.randint(2, 12))] for _ in range(60)]
        with_special = [
            [rng.choice(special) if rng.random() < 0.4 else rng.randrange(size) for _ in range(6)]
            for _ in range(30 if special else 0)
        ]
        return [*singles, *mixed, *with_special, *self._byte_runs(rng)]

    def _byte_runs(self, rng: random.Random) -> Sequence[list[int]]:
        """Runs of byte tokens, good and bad, where there are any."""
        found = [self._raw.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        ids = [token_id for token_id in found if token_id is not None]
        if len(ids) < 256:
            return []
        texts = ["a", "é", "日本", "🥨🫠", " ▁ "]
        good = [[ids[byte] for byte in text.encode()] for text in texts]
        bad = [[ids[rng.randrange(256)] for _ in range(rng.randint(1, 5))] for _ in range(20)]
        return [*good, *bad, *(g + b for g, b in zip(good, bad, strict=False))]
