"""Decoding as an automaton: a state, an id, some text and the next state.

A state is what the ids so far leave open; nearly always that is nothing. Transitions are computed
once and then looked up, so a token costs the same wherever it stands. One automaton serves all
streams of a tokenizer with one setting of `skip_special_tokens`.
"""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from headwater.text.piece_table import PieceTable

__all__ = ["Automaton", "ByteAutomaton", "PieceAutomaton", "State"]

_REPLACEMENT = "\ufffd"
# Bounds of what is remembered: beyond them everything but the state of rest is learned anew.
_MAX_STATES = 4096
_MAX_TRANSITIONS = 1 << 20
_MAX_RUN_LEN = 16  # longer runs of byte tokens are not remembered


class State(dict[int, tuple[str, "State"]]):
    """Where a stream stands; as a dict, the transitions that are known: id to (text, next state).

    Attributes:
        key: What is open.
        is_open: Ids wait for their text.
    """

    __slots__ = ("is_open", "key")

    def __init__(self, key: Hashable, *, is_open: bool) -> None:
        super().__init__()
        self.key = key
        self.is_open = is_open


class Automaton(ABC):
    """What both kinds share: the memory of states and transitions.

    Args:
        table: The tokenizer's pieces.
    """

    def __init__(self, table: PieceTable) -> None:
        self.table = table
        self._states: dict[Hashable, State] = {}
        self._num_transitions = 0

    @abstractmethod
    def start(self, prompt_ids: Sequence[int]) -> State:
        """The state behind a prompt."""

    @abstractmethod
    def finish(self, state: State) -> str:
        """End of the answer: the text of what is open."""

    @abstractmethod
    def _compute(self, state: State, token_id: int) -> tuple[str, State]:
        """The transition itself."""

    def advance(self, state: State, token_id: int) -> tuple[str, State]:
        """Take one id; return the text that is known now, and the next state."""
        hit = state.get(token_id)
        if hit is None:
            hit = self._compute(state, token_id)
            if self._states.get(state.key) is state:
                if self._num_transitions >= _MAX_TRANSITIONS:
                    self._forget()
                state[token_id] = hit
                self._num_transitions += 1
        return hit

    def _state(self, key: Hashable, *, is_open: bool, is_kept: bool = True) -> State:
        state = self._states.get(key)
        if state is None:
            state = State(key, is_open=is_open)
            if is_kept:
                if len(self._states) >= _MAX_STATES:
                    self._forget()
                self._states[key] = state
        return state

    def _forget(self) -> None:
        for state in self._states.values():
            state.clear()
        self._states.clear()
        self._num_transitions = 0


class _BytesKey(NamedTuple):
    """Bytes of a character that is not complete, and whether the prompt began it."""

    pending: bytes
    is_prompts: bool


class ByteAutomaton(Automaton):
    """Byte-level tokens.

    It is `decode` of the whole for any ids: the decoder joins the tokens' bytes and replaces each
    maximal invalid piece by one U+FFFD, which is what Python's decoder does, byte by byte.
    """

    def start(self, prompt_ids: Sequence[int]) -> State:
        """A character that the prompt left open is completed by the answer."""
        state = self._at(b"", is_prompts=False)
        for token_id in prompt_ids:
            state = self.advance(state, token_id)[1]
        pending = self._key(state).pending
        return self._at(pending, is_prompts=bool(pending))

    def finish(self, state: State) -> str:
        """An incomplete character is U+FFFD, unless the prompt has shown it already."""
        key = self._key(state)
        return _REPLACEMENT if key.pending and not key.is_prompts else ""

    def _compute(self, state: State, token_id: int) -> tuple[str, State]:
        key = self._key(state)
        data = self.table.data(token_id)
        if not data:
            return "", state
        text, used = codecs.utf_8_decode(key.pending + data, "replace", False)
        is_prompts = key.is_prompts
        if is_prompts and text:
            # The U+FFFD of the prompt's broken end belongs to the prompt's own text.
            text, is_prompts = text.removeprefix(_REPLACEMENT), False
        return text, self._at((key.pending + data)[used:], is_prompts=is_prompts)

    def _at(self, pending: bytes, *, is_prompts: bool) -> State:
        return self._state(_BytesKey(pending, is_prompts), is_open=bool(pending))

    @staticmethod
    def _key(state: State) -> _BytesKey:
        assert isinstance(state.key, _BytesKey)
        return state.key


class _PieceKey(NamedTuple):
    """What is open between pieces.

    Attributes:
        is_first: No token has had text.
        strip: Characters that may still be cut from the start.
        space: An end-of-word suffix waits for the next token.
        run: Bytes of a run of byte tokens that is good so far; None outside a run.
        tail: How many of the last of them are an incomplete character.
        is_bad: The run is known to be bad, and its U+FFFDs have left.
        num_prompt: How many of the run's bytes are the prompt's.
    """

    is_first: bool = True
    strip: int = 0
    space: bool = False
    run: bytes | None = None
    tail: int = 0
    is_bad: bool = False
    num_prompt: int = 0


class PieceAutomaton(Automaton):
    """Tokens that are pieces of text: SentencePiece, Metaspace, WordPiece, suffix BPE, no decoder.

    It is `decode` of the whole for any ids. What has to be held back: a run of byte tokens until it
    ends (one bad byte makes every byte of the run a U+FFFD), and the space of an end-of-word suffix
    until another token follows.
    """

    def start(self, prompt_ids: Sequence[int]) -> State:
        """What the prompt says is not part of the answer, but its last run goes on."""
        begin = _PieceKey(strip=self.table.plan.strip[1])
        state = self._at(begin)
        for token_id in prompt_ids:
            state = self.advance(state, token_id)[1]
        key = self._key(state)
        if key.is_first:
            return state
        num_prompt = len(key.run) if key.run is not None else 0
        return self._at(key._replace(strip=0, num_prompt=num_prompt))

    def finish(self, state: State) -> str:
        """A run ends with the answer."""
        return self._end_run(self._key(state))[0]

    def _compute(self, state: State, token_id: int) -> tuple[str, State]:
        key = self._key(state)
        token = self.table.token(token_id)
        if token is None:
            return "", state
        byte = self.table.byte(token)
        if byte is not None:
            text, key = self._take_byte(key, byte)
            return text, self._at(key)
        before, key = self._end_run(key)
        text, key = self._take_piece(key, token)
        return before + text, self._at(key)

    def _take_byte(self, key: _PieceKey, byte: int) -> tuple[str, _PieceKey]:
        """A run begins or goes on; its text leaves only when it is known to be bad."""
        key = key._replace(is_first=False)
        if key.is_bad:
            return self._cut(_REPLACEMENT, key)
        run = (key.run or b"") + bytes([byte])
        end = run[len(run) - key.tail - 1 :]
        try:
            used = codecs.utf_8_decode(end, "strict", False)[1]
        except UnicodeDecodeError:
            return self._break(key._replace(run=run))
        return "", key._replace(run=run, tail=len(end) - used)

    def _end_run(self, key: _PieceKey) -> tuple[str, _PieceKey]:
        """The run's text, as far as it has not left."""
        done = key._replace(run=None, tail=0, is_bad=False, num_prompt=0)
        if key.run is None or key.is_bad:
            return "", done
        if key.tail:
            text, broken = self._break(key)
            return text, done._replace(strip=broken.strip)
        shown = len(key.run[: key.num_prompt].decode("utf-8", "ignore"))
        return self._cut(key.run.decode("utf-8")[shown:], done)

    def _break(self, key: _PieceKey) -> tuple[str, _PieceKey]:
        """The run is bad: every byte of it is a U+FFFD; the prompt's have been shown by it."""
        count = len(key.run or b"") - key.num_prompt
        bad = key._replace(run=b"", tail=0, is_bad=True, num_prompt=0)
        return self._cut(_REPLACEMENT * count, bad)

    def _take_piece(self, key: _PieceKey, token: str) -> tuple[str, _PieceKey]:
        plan = self.table.plan
        is_first, key = key.is_first, key._replace(is_first=False)
        if plan.suffix:
            body = token.removesuffix(plan.suffix).replace(plan.suffix, " ")
            text = (" " if key.space else "") + body
            return text, key._replace(space=token.endswith(plan.suffix))
        return self._cut(plan.first(token) if is_first else plan.later(token), key)

    def _cut(self, text: str, key: _PieceKey) -> tuple[str, _PieceKey]:
        """The decoder's last steps: single characters replaced, the start of the text stripped."""
        plan = self.table.plan
        text, strip = plan.after_run(text), key.strip
        while strip and text:
            if text[0] != plan.strip[0]:
                strip = 0
                break
            text, strip = text[1:], strip - 1
        return text, key._replace(strip=strip)

    def _at(self, key: _PieceKey) -> State:
        holds = key.run is not None and not key.is_bad
        length = len(key.run) if key.run is not None else 0
        return self._state(key, is_open=holds, is_kept=length <= _MAX_RUN_LEN)

    @staticmethod
    def _key(state: State) -> _PieceKey:
        assert isinstance(state.key, _PieceKey)
        return state.key
