"""The tokenizer: text to ids and back; the only home of the `tokenizers` library.

It loads one tokenizer.json and knows no model, no chat template and no stream.
"""

import gzip
import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import regex
import tokenizers

from headwater.errors import InvalidRequest, ModelLoadError
from headwater.text.automaton import Automaton, ByteAutomaton, PieceAutomaton
from headwater.text.cuts import SafeCuts
from headwater.text.decoder_plan import DecoderPlan, byte_level_bytes, read_plan
from headwater.text.piece_table import PieceTable, byte_of

__all__ = ["Tokenizer", "load_tokenizer"]

_MAX_ID = (1 << 32) - 1  # the library's ids are 32 bits wide
_LONG_TEXT = 1024  # characters; handing a shorter text to another thread costs more than it gives

log = logging.getLogger("headwater.text")


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
        self._automata: dict[bool, Automaton | None] = {}

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
    def cuts(self) -> SafeCuts:
        """Where a text can be cut and encoded piece by piece."""
        return SafeCuts(self.raw)

    @cached_property
    def leading_ids(self) -> list[int]:
        """What `encode` puts before a text by itself, such as BOS."""
        whole, bare = self.encode("a"), self.encode("a", add_special_tokens=False)
        for start in range(len(whole) - len(bare) + 1 if bare else 0):
            if whole[start : start + len(bare)] == bare:
                return whole[:start]
        return []

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
        return _encode(self.raw, text, add_special_tokens)

    def encode_plain(self, text: str) -> list[int]:
        """Text to ids, where the text of special tokens is text like any other."""
        return _encode(self._plain, text, False)

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
        """All ids at once to text; what every stream must join to. Unknown ids have no text.

        Raises:
            ValueError: The decoder fails on these ids.
        """
        known = [token_id for token_id in ids if 0 <= token_id <= _MAX_ID]
        if not known:
            return ""
        try:
            text: str = self.raw.decode(known, skip_special_tokens=skip_special_tokens)
        except BaseException as err:
            # A panic inside the library is no Exception; uncaught it would end the process.
            if type(err).__name__ != "PanicException":
                raise
            raise ValueError(f"the tokenizer's decoder failed: {err}") from None
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
        token = self.raw.id_to_token(token_id) if token_id >= 0 else None
        plan = self.plan
        if token is None:
            return b""
        if plan is None:
            return self.decode([token_id], skip_special_tokens=False).encode()
        if plan.is_byte_level:
            return byte_level_bytes(token)
        byte = byte_of(token) if plan.has_byte_fallback else None
        return bytes([byte]) if byte is not None else plan.later(token).encode()

    @cached_property
    def plan(self) -> DecoderPlan | None:
        """What the decoder does, when that is understood."""
        decoder = self.raw.decoder
        return read_plan(None if decoder is None else decoder.__getstate__().decode())

    def automaton(self, *, skip_special_tokens: bool) -> Automaton | None:
        """The automaton that decodes streams; None when only the window method is right.

        It is trusted after it has agreed with `decode` on a sample of sequences.
        """
        if skip_special_tokens not in self._automata:
            self._automata[skip_special_tokens] = self._checked(skip_special_tokens)
        return self._automata[skip_special_tokens]

    def _checked(self, skip_special_tokens: bool) -> Automaton | None:
        plan = self.plan
        if plan is None:
            return None
        table = PieceTable(self.raw, plan, skip_special_tokens=skip_special_tokens)
        automaton = ByteAutomaton(table) if plan.is_byte_level else PieceAutomaton(table)
        for ids in table.sample():
            state, text = automaton.start(()), ""
            for token_id in ids:
                piece, state = automaton.advance(state, token_id)
                text += piece
            text += automaton.finish(state)
            if text != self.decode(ids, skip_special_tokens=skip_special_tokens):
                log.warning("the decoder is not what it seems; streams take the slower way")
                return None
        return automaton


def _encode(raw: tokenizers.Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    """Ids of a text.

    The library lets other threads of Python run while it encodes a batch, not while it encodes a
    single text: a long one would stop every stream of the server.

    Raises:
        InvalidRequest: The library fails on this text.
    """
    try:
        if len(text) < _LONG_TEXT:
            encoding = raw.encode(text, add_special_tokens=add_special_tokens)
        else:
            encoding = raw.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
    except BaseException as err:
        # Added tokens that strip what is around them make it panic on some texts, and a panic is no
        # Exception: it would pass every handler of the server.
        if type(err).__name__ != "PanicException":
            raise
        raise InvalidRequest(f"the model's tokenizer fails on this text: {err}") from None
    ids: list[int] = encoding.ids
    return ids
