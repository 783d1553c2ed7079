"""The text of one answer: decoding and stops together; it knows ids and text, no messages.

Ids leave only with the delta that carries the last of their text, so what a chunk says in ids and
in text agrees. A stop that completes before `min_new_tokens` ids does not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.text.decode_stream import DecodeStream
from headwater.text.stop_matcher import StopMatcher
from headwater.text.stop_regex import RegexStopMatcher
from headwater.text.tokenizer import Tokenizer

__all__ = ["AnswerText", "Piece"]


@dataclass(slots=True)
class Piece:
    """What left.

    Attributes:
        text: New text.
        num_ids: How many of the ids not yet left leave with it.
        matched: The stop that ended the answer, or None.
        num_ids_total: Length of the answer at the match; 0 without one.
        num_trimmed: How many of its last ids have no text in the answer because of the stop.
    """

    text: str
    num_ids: int
    matched: str | None = None
    num_ids_total: int = 0
    num_trimmed: int = 0


class AnswerText:
    """Feeds ids, gives text, and finds where stop strings and patterns end the answer.

    Args:
        tokenizer: The model's tokenizer.
        context_ids: The last prompt ids.
        skip_special_tokens: Leave special tokens out of the text.
        spaces_between_special_tokens: See `DecodeStream`.
        stop: Stop strings.
        stop_regex: Stop patterns.
        no_stop_trim: Keep the matched stop, and a matched stop token, in the text.
        min_new_tokens: Ids before which no stop counts.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        context_ids: Sequence[int] = (),
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        stop: Sequence[str] = (),
        stop_regex: Sequence[str] = (),
        no_stop_trim: bool = False,
        min_new_tokens: int = 0,
    ) -> None:
        self._stream = DecodeStream(
            tokenizer,
            skip_special_tokens=skip_special_tokens,
            spaces_between_special_tokens=spaces_between_special_tokens,
            prompt_ids=context_ids,
        )
        self._matcher: StopMatcher | RegexStopMatcher | None = None
        if stop_regex:
            self._matcher = RegexStopMatcher(stop_regex, stops=stop, keep=no_stop_trim)
        elif stop:
            self._matcher = StopMatcher(stop, keep=no_stop_trim)
        self._min_new_tokens = min_new_tokens
        self._num_ids = 0
        self._text_len = 0  # characters decoded so far
        self._sent_len = 0  # characters that have left
        self._last_end = 0  # where the text of the last id that has left ends
        self._ends: list[int] = []  # where the text of each id that has not left ends
        self._num_open = 0  # the last ids, whose character is not complete

    def feed(self, ids: Sequence[int], *, trim_ids: int = 0) -> Piece:
        """Take the next ids.

        Args:
            ids: New ids, in any grouping.
            trim_ids: How many of the last of them are a matched stop token, which has no text.
        """
        if self._matcher is None:
            return self._feed_plain(ids, trim_ids)
        out: list[str] = []
        for token_id in ids[: len(ids) - trim_ids]:
            self._num_ids += 1
            out.append(self._take(self._stream.feed([token_id])))
            self._mark()
            if self._matched is not None:
                return self._end("".join(out))
        return self._leave("".join(out))

    def flush(self) -> Piece:
        """End of the answer: everything that was held back leaves."""
        text = self._take(self._stream.flush())
        if self._matched is not None:
            return self._end(text)
        if self._matcher is not None:
            text += self._matcher.flush()
        self._sent_len += len(text)
        count = self._num_open if self._matcher is None else len(self._ends)
        self._ends, self._num_open = [], 0
        return Piece(text, count)

    def _feed_plain(self, ids: Sequence[int], trim_ids: int) -> Piece:
        """Without stops an id waits only while its character is not complete."""
        stream, text, count = self._stream, "", 0
        for token_id in ids[: len(ids) - trim_ids]:
            text += stream.feed((token_id,))
            self._num_open += 1
            if not stream.is_open:
                count += self._num_open
                self._num_open = 0
        return Piece(text, count)

    @property
    def _matched(self) -> str | None:
        return None if self._matcher is None else self._matcher.matched

    def _take(self, text: str) -> str:
        """Pass decoded text through the stops."""
        self._text_len += len(text)
        if self._matcher is None:  # only at the end
            return text
        return self._matcher.feed(text, armed=self._num_ids >= self._min_new_tokens)

    def _mark(self) -> None:
        """Note where the text of the newest id ends, and of those whose character it completes."""
        self._ends.append(self._text_len)
        if self._stream.is_open:
            self._num_open += 1
            return
        for k in range(1, self._num_open + 1):
            self._ends[-1 - k] = self._text_len
        self._num_open = 0

    def _leave(self, text: str) -> Piece:
        """Let go the text and the ids that have no text behind it."""
        self._sent_len += len(text)
        count = 0
        for end in self._ends[: len(self._ends) - self._num_open]:
            if end > self._sent_len:
                break
            self._last_end = end
            count += 1
        del self._ends[:count]
        return Piece(text, count)

    def _end(self, text: str) -> Piece:
        """The answer ended in its newest id, by a stop."""
        left = self._leave(text).num_ids
        rest = len(self._ends)
        is_cut = rest > 0 and self._last_end < self._sent_len  # its first id shows in part
        self._ends = []
        return Piece(text, left + rest, self._matched, self._num_ids, rest - is_cut)
