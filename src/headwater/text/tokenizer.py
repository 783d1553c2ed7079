"""The tokenizer: text to ids and back; the only home of the `tokenizers` library.

It loads one tokenizer.json and knows no model, no chat template and no stream.
"""

import gzip
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import regex
import tokenizers

from headwater.errors import ModelLoadError

__all__ = ["Tokenizer", "load_tokenizer"]


def load_tokenizer(path: Path) -> "Tokenizer":
    """Load a tokenizer.json, or a gzipped one.

    Raises:
        ModelLoadError: The file cannot be read, or is not a tokenizer.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        return Tokenizer(tokenizers.Tokenizer.from_str(data.decode("utf-8")))
    # The library raises bare Exception for a file it does not understand.
    except Exception as err:
        raise ModelLoadError(f"cannot load the tokenizer {path}: {err}") from err


class Tokenizer:
    """A loaded tokenizer.

    Args:
        raw: The library's object; it must not be changed afterwards.
    """

    def __init__(self, raw: tokenizers.Tokenizer) -> None:
        self.raw = raw
        # Truncation or padding saved in the file would change prompts behind the user's back.
        raw.no_truncation()
        raw.no_padding()

    @cached_property
    def vocab_size(self) -> int:
        """Largest id + 1, added tokens included."""
        return max(self.raw.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids that `skip_special_tokens` leaves out."""
        added = self.raw.get_added_tokens_decoder()
        return frozenset(token_id for token_id, token in added.items() if token.special)

    @cached_property
    def special_texts(self) -> dict[str, int]:
        """Text of each special token to its id."""
        added = self.raw.get_added_tokens_decoder()
        return {token.content: token_id for token_id, token in added.items() if token.special}

    @cached_property
    def _special_pattern(self) -> regex.Pattern[str]:
        words = sorted(filter(None, self.special_texts), key=len, reverse=True)
        return regex.compile("|".join(map(regex.escape, words)) or "(?!)")

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """A copy to which special tokens' texts are texts like any other."""
        plain = tokenizers.Tokenizer.from_str(self.raw.to_str())
        plain.encode_special_tokens = True
        return plain

    @cached_property
    def _added(self) -> dict[int, str]:
        return {i: t.content for i, t in self.raw.get_added_tokens_decoder().items()}

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Text to ids; the text of special tokens becomes their ids."""
        ids: list[int] = self.raw.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def encode_plain(self, text: str) -> list[int]:
        """Text to ids, where the text of special tokens is text like any other."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def split_special(self, text: str) -> list[tuple[str, int | None]]:
        """Cut a text at its special tokens: pieces with the token's id, or None for plain text."""
        pieces: list[tuple[str, int | None]] = []
        at = 0
        for match in self._special_pattern.finditer(text):
            if match.start() > at:
                pieces.append((text[at : match.start()], None))
            pieces.append((match[0], self.special_texts[match[0]]))
            at = match.end()
        return [*pieces, (text[at:], None)] if at < len(text) else pieces

    def decode(
        self,
        ids: Sequence[int],
        *,
        skip_special_tokens: bool = True,
    ) -> str:
        """All ids at once to text; what every stream must join to."""
        text: str = self.raw.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def save(self, path: Path) -> None:
        """Write a tokenizer.json."""
        self.raw.save(str(path))

    def id_of(self, token: str) -> int | None:
        """Id of a token by its vocabulary spelling."""
        token_id: int | None = self.raw.token_to_id(token)
        return token_id

    def token_text(self, token_id: int) -> str:
        """One token decoded by itself; bytes that are no character are U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for, which may be a piece of a character."""
        if token_id in self._added:
            return self._added[token_id].encode()
        piece = self.raw.id_to_token(token_id)
        if piece is None:
            return b""
        if self._is_byte_level:
            return _from_byte_level(piece)
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)])
        if "▁" in piece:
            return piece.replace("▁", " ").encode()
        return self.decode([token_id], skip_special_tokens=False).encode()

    @cached_property
    def _is_byte_level(self) -> bool:
        return "ByteLevel" in str(self.raw.decoder)


def _byte_level_table() -> dict[str, int]:
    """GPT-2's printable spelling of the 256 bytes (`bytes_to_unicode` in its encoder.py)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in kept}
    moved = (byte for byte in range(256) if byte not in kept)
    return table | {chr(256 + n): byte for n, byte in enumerate(moved)}


_BYTE_OF = _byte_level_table()


def _from_byte_level(piece: str) -> bytes:
    if all(char in _BYTE_OF for char in piece):
        return bytes(_BYTE_OF[char] for char in piece)
    return piece.encode()
