"""From a `GenerateRequest` to the messages that ask for its answers; checks, tokens, seeds.

It knows limits and tokenizers, no sockets and no HTTP.
"""

import asyncio
import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from headwater.errors import ContextLengthExceeded, InvalidRequest
from headwater.frontend.requests import GenerateRequest
from headwater.messages.requests import MAX_LOGPROBS, MAX_REPORTED, Generate, LogprobSpec
from headwater.text.tokenizer import Tokenizer

__all__ = ["Intake", "Prepared", "seed_source"]

# Above this many characters tokenizing takes long enough to be felt by other requests' streams.
_LONG_TEXT = 4096
_INT64 = 1 << 63


def seed_source(random_seed: int | None) -> Callable[[], int]:
    """Where requests without a seed get one: 63-bit numbers, repeatable when a seed is given."""
    if random_seed is None:
        return lambda: secrets.randbits(63)
    numbers = Random(random_seed)
    return lambda: numbers.getrandbits(63)


@dataclass(slots=True, frozen=True)
class Prepared:
    """A request that has passed all checks.

    Attributes:
        request: What was asked.
        rid: Its name.
        prompt_ids: Its prompt.
        max_new_tokens: Most tokens of the answer.
        seed: Seed of its first answer.
    """

    request: GenerateRequest
    rid: str
    prompt_ids: list[int]
    max_new_tokens: int
    seed: int

    def answer_rids(self) -> list[str]:
        """Names of the `n` answers."""
        count = self.request.params.n
        return [self.rid] if count == 1 else [f"{self.rid}_{k}" for k in range(count)]

    def message(self, uid: int, k: int) -> Generate:
        """The message that asks for answer k."""
        seed = (self.seed + k + _INT64) % (2 * _INT64) - _INT64
        params = msgspec.structs.replace(
            self.request.params, max_new_tokens=self.max_new_tokens, sampling_seed=seed, n=1
        )
        return Generate(
            uid=uid,
            rid=self.answer_rids()[k],
            prompt_ids=self.prompt_ids,
            params=params,
            logprobs=self.request.logprobs,
            stream=self.request.stream,
            cache_salt=self.request.cache_salt,
        )


class Intake:
    """Checks requests and turns their prompts into ids.

    Args:
        tokenizer: The model's tokenizer.
        vocab_size: Ids lie in [0, vocab_size).
        context_length: Most tokens in prompt plus answer.
        max_total_tokens: Tokens in the KV cache.
        random_seed: Makes the seeds of unseeded requests repeatable.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        vocab_size: int,
        context_length: int,
        max_total_tokens: int,
        random_seed: int | None,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._context_length = context_length
        self._max_total_tokens = max_total_tokens
        self._draw_seed = seed_source(random_seed)

    async def prepare(self, requests: Sequence[GenerateRequest]) -> list[Prepared]:
        """Check every request; nothing is sent when one of them is wrong.

        Raises:
            InvalidRequest: A prompt is missing, empty, out of the vocabulary or too long.
        """
        return [await self._prepare_one(request) for request in requests]

    async def _prepare_one(self, request: GenerateRequest) -> Prepared:
        ids = await self._prompt_ids(request)
        _check_reported(request, len(ids))
        params = request.params
        return Prepared(
            request=request,
            rid=request.rid if request.rid is not None else uuid.uuid4().hex,
            prompt_ids=ids,
            max_new_tokens=self._max_new_tokens(request, len(ids)),
            seed=self._draw_seed() if params.sampling_seed is None else params.sampling_seed,
        )

    async def _prompt_ids(self, request: GenerateRequest) -> list[int]:
        param = request.prompt_param
        if (request.text is None) == (request.input_ids is None):
            raise InvalidRequest("give exactly one of text and input_ids", param=param)
        if request.logprobs is not None:
            self._check_logprobs(request.logprobs)
        if request.input_ids is not None:
            ids = request.input_ids
            self._check_ids(ids, param)
        else:
            ids = await self._encode(request)
        if not ids:
            raise InvalidRequest("the prompt has no tokens; at least one is needed", param=param)
        return ids

    def _check_logprobs(self, spec: LogprobSpec) -> None:
        """Bound what is reported at each position: it is kept for every one of the prompt."""
        for param, low, value in (
            ("logprob_start_len", -1, spec.start_len),
            ("top_logprobs_num", 0, spec.top_num),
        ):
            if not isinstance(value, int) or value < low:
                text = f"{param} must be an integer >= {low}, got {value!r}"
                raise InvalidRequest(text, param=param)
        for param, count in (
            ("top_logprobs_num", spec.top_num),
            ("token_ids_logprob", len(spec.token_ids)),
        ):
            if count > MAX_LOGPROBS:
                raise InvalidRequest(
                    f"{param} may ask for {MAX_LOGPROBS} tokens at each position, got {count}",
                    param=param,
                )
        self._check_ids(spec.token_ids, "token_ids_logprob")

    def _check_ids(self, ids: Sequence[int], param: str) -> None:
        for token_id in ids:
            if not isinstance(token_id, int) or not 0 <= token_id < self._vocab_size:
                raise InvalidRequest(
                    f"token ids must lie in [0, {self._vocab_size}), got {token_id!r}", param=param
                )

    def check_chars(self, text: str, param: str) -> None:
        """Refuse a text that need not be tokenized to know that it is too long.

        Raises:
            ContextLengthExceeded: It is; `param` is where it came in.
        """
        # A token is at least one character of most texts, and never more than 64 of any.
        if len(text) > 64 * self._context_length + _LONG_TEXT:
            raise ContextLengthExceeded(
                f"the prompt has {len(text)} characters, which cannot fit the context of "
                f"{self._context_length} tokens",
                param=param,
            )

    async def _encode(self, request: GenerateRequest) -> list[int]:
        text = request.text or ""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidRequest(
                "the text holds half of a surrogate pair, which is no character",
                param=request.prompt_param,
            ) from None
        self.check_chars(text, request.prompt_param)
        encode, add_special = self._tokenizer.encode, request.add_special_tokens
        try:
            if len(text) <= _LONG_TEXT:
                return encode(text, add_special_tokens=add_special)
            return await asyncio.to_thread(encode, text, add_special_tokens=add_special)
        except InvalidRequest as err:
            raise InvalidRequest(err.message, param=request.prompt_param) from None

    def _max_new_tokens(self, request: GenerateRequest, prompt_len: int) -> int:
        asked = request.params.max_new_tokens
        limit = min(self._context_length, self._max_total_tokens)
        room = limit - prompt_len
        if room < (asked != 0):
            raise ContextLengthExceeded(
                f"the prompt has {prompt_len} tokens and the context holds {limit} tokens, "
                "prompt and answer together",
                param=request.prompt_param,
            )
        if asked is None:
            return room
        if asked > room and request.is_max_new_tokens_explicit:
            raise ContextLengthExceeded(
                f"the prompt has {prompt_len} tokens and {asked} more were asked for, but the "
                f"context holds {limit} tokens, prompt and answer together",
                param=request.max_new_tokens_param,
            )
        return min(asked, room)


def _check_reported(request: GenerateRequest, prompt_len: int) -> None:
    """Bound what is kept of an answer; one of open length is not known to be long."""
    spec = request.logprobs
    if spec is None:
        return
    positions = 0 if spec.start_len < 0 else max(0, prompt_len - spec.start_len)
    if request.is_max_new_tokens_explicit:
        positions += request.params.max_new_tokens or 0
    for param, count in (
        ("top_logprobs_num", spec.top_num),
        ("token_ids_logprob", len(spec.token_ids)),
    ):
        if count * positions > MAX_REPORTED:
            raise InvalidRequest(
                f"{param} asks for {count} tokens at each of {positions} positions; a request may "
                f"ask for {MAX_REPORTED} in all",
                param=param,
            )
