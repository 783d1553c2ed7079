"""What each id of a tokenizer stands for; it knows one token at a time, no neighbours."""

import random
from collections.abc import Iterator

import tokenizers

from headwater.text.decoder_plan import DecoderPlan, byte_level_bytes

__all__ = ["PieceTable", "byte_of"]

_MAX_ID = (1 << 32) - 1  # the library's ids are 32 bits wide


def byte_of(token: str) -> int | None:
    """The byte of a token `<0xNN>`, or None."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            return None
    return None


class PieceTable:
    """Tokens of a tokenizer, with or without the special ones.

    Args:
        raw: The tokenizer.
        plan: Its decoder's plan.
        skip_special_tokens: Special tokens have no text.
    """

    def __init__(
        self, raw: tokenizers.Tokenizer, plan: DecoderPlan, *, skip_special_tokens: bool
    ) -> None:
        self.plan = plan
        self._raw = raw
        self._added = raw.get_added_tokens_decoder()
        self._skip = skip_special_tokens

    def token(self, token_id: int) -> str | None:
        """The vocabulary's spelling of an id that has text, else None."""
        if not 0 <= token_id <= _MAX_ID:
            return None
        added = self._added.get(token_id)
        if added is not None:
            return None if added.special and self._skip else added.content
        token: str | None = self._raw.id_to_token(token_id)
        return token

    def data(self, token_id: int) -> bytes:
        """Byte-level: the bytes of an id; none for an id without text."""
        token = self.token(token_id)
        return b"" if token is None else byte_level_bytes(token)

    def byte(self, token: str) -> int | None:
        """Byte fallback: the byte that a token is, or None."""
        if not self.plan.has_byte_fallback:
            return None
        for old, new in self.plan.replace_token:
            token = token.replace(old, new)
        return byte_of(token)

    def sample(self) -> Iterator[list[int]]:
        """Id sequences on which a stream must agree with the tokenizer before it is trusted."""
        rng = random.Random(0)
        size = max(self._raw.get_vocab_size(with_added_tokens=True), 1)
        special = sorted(self._added)[:40]
        for _ in range(60):
            yield [rng.randrange(size)]
            yield [rng.randrange(size) for _ in range(rng.randint(2, 12))]
        for _ in range(30 if special else 0):
            pick = (special, range(size))
            yield [rng.choice(pick[rng.random() < 0.6]) for _ in range(6)]
        yield from self._byte_runs(rng)

    def _byte_runs(self, rng: random.Random) -> Iterator[list[int]]:
        """Runs of byte tokens, good and bad, where there are any."""
        found = [self._raw.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        ids = [token_id for token_id in found if token_id is not None]
        if len(ids) < 256:
            return
        for text in ("a", "é", "日本", "🥨🫠", " ▁ "):
            good = [ids[byte] for byte in text.encode()]
            bad = [ids[rng.randrange(256)] for _ in range(rng.randint(1, 5))]
            yield from (good, bad, good + bad, bad + good)
