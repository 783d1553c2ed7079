"""What the detokenizer keeps of each answer; it knows messages and text, no sockets.

Life of an answer here:

    open      from its first output (which carries the `Opening`) on
    stopped   a stop string was found: its last delta has left, the worker has been told, and
              whatever else the worker had made is dropped until it confirms
    gone      after the output with `finish`; exactly one final delta has left
"""

import logging

from headwater.detokenizer.logprobs import with_texts
from headwater.errors import HeadwaterError
from headwater.messages.requests import Stop
from headwater.messages.text import TextDelta, TokenLogprobs
from headwater.messages.tokens import Finish, Opening, TokenBatch, TokenOutput
from headwater.text.answer import AnswerText
from headwater.text.tokenizer import Tokenizer

__all__ = ["Detokenizer"]

log = logging.getLogger("headwater.detokenizer")


class Detokenizer:
    """Turns token outputs into text deltas, for all answers in flight.

    Args:
        tokenizer: The served model's tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._open: dict[int, _Answer] = {}
        self._stopped: set[int] = set()

    @property
    def num_answers(self) -> int:
        """Answers that the worker has not finished yet."""
        return len(self._open) + len(self._stopped)

    def feed(self, batch: TokenBatch) -> tuple[list[TextDelta], list[Stop]]:
        """Take the outputs of a step; return the deltas to send and the stops found."""
        deltas: list[TextDelta] = []
        stops: list[Stop] = []
        for output in batch.outputs:
            if output.uid in self._stopped:
                if output.finish is not None:
                    self._stopped.discard(output.uid)
                continue
            delta = self._feed_one(output)
            if delta is None:
                continue
            deltas.append(delta)
            if delta.finish is not None:
                self._open.pop(output.uid, None)
                if output.finish is None:
                    self._stopped.add(output.uid)
                    stops.append(Stop(output.uid, delta.completion_tokens))
        return deltas, stops

    def _feed_one(self, output: TokenOutput) -> TextDelta | None:
        answer = self._open.get(output.uid)
        try:
            if answer is None:
                if output.opening is None:  # it ended before it began: aborted or refused
                    return TextDelta(output.uid, "", [], finish=output.finish or _LOST)
                answer = self._open[output.uid] = _Answer(self._tokenizer, output.opening)
            return answer.feed(output)
        except HeadwaterError as err:
            finish = Finish("error", message=err.message, code=err.code, param=err.param)
        except Exception:  # one answer's text must not take the others down
            log.exception("detokenizing answer %d failed", output.uid)
            finish = _FAILED
        num_ids = 0 if answer is None else answer.num_sent
        return TextDelta(output.uid, "", [], finish=finish, completion_tokens=num_ids)


_LOST = Finish("error", message="the answer's beginning is missing", code="internal_error")
_FAILED = Finish("error", message="the answer could not be decoded", code="internal_error")


class _Answer:
    """One open answer: its text, and the ids and log-probabilities that wait for their text."""

    def __init__(self, tokenizer: Tokenizer, opening: Opening) -> None:
        self._tokenizer = tokenizer
        self._opening = opening
        self._text = _new_text(tokenizer, opening)
        self._version = 0
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprobs] | None = None
        self._input_logprobs: list[TokenLogprobs] | None = None
        self._pieces: list[str] = []
        self._num_ready = 0  # ids whose text has left `_text`
        self.num_sent = 0
        self._sent_ids: list[int] = []
        self._sent_pieces: list[str] = []

    def feed(self, output: TokenOutput) -> TextDelta | None:
        """Take one output; return the delta to send, if there is one."""
        if output.version != self._version:
            self._restart(output)
        self._keep(output)
        piece = self._text.feed(output.ids, trim_ids=output.trim_ids)
        self._take(piece.text, piece.num_ids)
        if output.version != self._version:
            self._version = output.version
            self._skip_sent()
        if piece.matched is not None:
            finish = Finish("stop", matched=piece.matched)
            return self._delta(output, finish, piece.num_ids_total, piece.num_trimmed)
        if output.finish is not None:
            piece = self._text.flush()
            if piece.matched is not None:
                finish = Finish("stop", matched=piece.matched)
                self._take(piece.text, piece.num_ids)
                return self._delta(output, finish, piece.num_ids_total, piece.num_trimmed)
            self._pieces.append(piece.text)
            total = self.num_sent + len(self._ids)
            return self._delta(output, output.finish, total, output.trim_ids)
        if not self._opening.stream or not (self._num_ready or self._pieces):
            return None
        return self._delta(output, None, self.num_sent + self._num_ready, 0)

    def _restart(self, output: TokenOutput) -> None:
        """Forget everything that has not left: the output holds the whole answer."""
        if output.ids[: self.num_sent] != self._sent_ids:
            raise ValueError("ids that have left cannot be replaced")
        self._text = _new_text(self._tokenizer, self._opening)
        self._ids, self._logprobs, self._pieces, self._num_ready = [], None, [], 0

    def _skip_sent(self) -> None:
        """After a restart: what has left does not leave again."""
        text, sent = "".join(self._pieces), "".join(self._sent_pieces)
        if not text.startswith(sent):
            raise ValueError("text that has left cannot be replaced")
        self._pieces = [text[len(sent) :]] if len(text) > len(sent) else []
        self._num_ready -= self.num_sent
        del self._ids[: self.num_sent]
        if self._logprobs is not None:
            del self._logprobs[: self.num_sent]

    def _keep(self, output: TokenOutput) -> None:
        self._ids += output.ids
        tokenizer = self._tokenizer if self._opening.logprob_text else None
        if output.output_logprobs is not None:
            self._logprobs = (self._logprobs or []) + with_texts(output.output_logprobs, tokenizer)
        if output.input_logprobs is not None:
            self._input_logprobs = with_texts(output.input_logprobs.positions, tokenizer)

    def _take(self, text: str, num_ids: int) -> None:
        if text:
            self._pieces.append(text)
        self._num_ready += num_ids

    def _delta(
        self, output: TokenOutput, finish: Finish | None, num_ids_total: int, num_trimmed: int
    ) -> TextDelta:
        """Everything that is ready, up to the answer's `num_ids_total`-th id."""
        count = num_ids_total - self.num_sent
        ids, self._ids = self._ids[:count], self._ids[count:]
        logprobs = None
        if self._logprobs is not None:
            logprobs, self._logprobs = self._logprobs[:count], self._logprobs[count:]
        text = "".join(self._pieces)
        self._sent_ids += ids
        self._sent_pieces.append(text)
        inputs, self._input_logprobs = self._input_logprobs, None
        self._pieces, self._num_ready, self.num_sent = [], 0, num_ids_total
        return TextDelta(
            uid=output.uid,
            text=text,
            ids=ids,
            finish=finish,
            prompt_tokens=self._opening.prompt_tokens,
            completion_tokens=num_ids_total,
            cached_tokens=output.cached_tokens,
            num_retractions=output.num_retractions,
            input_logprobs=inputs,
            output_logprobs=logprobs,
            trimmed_ids=num_trimmed,
        )


def _new_text(tokenizer: Tokenizer, opening: Opening) -> AnswerText:
    return AnswerText(
        tokenizer,
        context_ids=opening.context_ids,
        skip_special_tokens=opening.skip_special_tokens,
        spaces_between_special_tokens=opening.spaces_between_special_tokens,
        stop=opening.stop,
        stop_regex=opening.stop_regex,
        no_stop_trim=opening.no_stop_trim,
        min_new_tokens=opening.min_new_tokens,
    )
