"""One request inside the scheduler; it knows its own ids, pages and records, and no other request.

    state        kept in     pages                     num_computed           ends with
    waiting      the queue   none                      0                      start, or the end
    prefilling   running     hold all of `token_ids`   < len(token_ids) - 1   last chunk, retraction
    decoding     running     hold all of `token_ids`   = len(token_ids) - 1   the end, retraction
    ended        nowhere     none

A retracted request waits again with the tokens of its answer, so its next prefill is longer. Who
owns the entries of `pages`:

    pages[: node.depth]    the radix cache; the request holds one lock on `node`
    pages[node.depth :]    the request; filled up to `num_computed`
"""

from headwater.messages.requests import Generate
from headwater.messages.tokens import PositionLogprobs
from headwater.worker.cache.radix import Node
from headwater.worker.scheduler.options import SchedulerOptions

__all__ = ["Request"]


class Request:
    """A request from its arrival to its end.

    Args:
        generate: The message that brought it.
        arrival: Its place in the order of arrival.
        options: The scheduler's settings.
        root: The empty prefix of the radix cache.

    Attributes:
        uid: Number of the answer.
        arrival: Its place in the order of arrival; the youngest has the highest.
        generate: The message that brought it.
        params: Its sampling parameters.
        prompt_len: Length of the prompt.
        token_ids: Prompt and answer so far. Rows of a plan refer to this very list.
        max_new_tokens: Most tokens of the answer.
        seed: Seed of its noise.
        stop_ids: Tokens that end the answer.
        interval: Tokens between two outputs; 0: only one output, at the end.
        pages: Page table; see above.
        node: Last cached page of it; the root when there is none.
        found: Where the last search of the cache ended; only a starting point for the next.
        num_computed: Positions whose keys and values are in the pages.
        cached_tokens: Prompt tokens taken from the cache at the first start; None before it.
        num_retractions: Times it was retracted.
        num_overtaken: Steps in which a later request started while this one waited.
        next_input: First prompt position whose log-probabilities are still to be computed;
            `prompt_len` when there is none.
        input_logprobs: Log-probabilities of prompt positions before `next_input`; None when not
            asked for.
        output_logprobs: Log-probabilities that have not been sent; None when not asked for.
        num_sent: Tokens of the answer that have been sent.
        is_opened: An output has been sent.
    """

    __slots__ = (
        "arrival",
        "cached_tokens",
        "found",
        "generate",
        "input_logprobs",
        "interval",
        "is_opened",
        "max_new_tokens",
        "next_input",
        "node",
        "num_computed",
        "num_overtaken",
        "num_retractions",
        "num_sent",
        "output_logprobs",
        "pages",
        "params",
        "prompt_len",
        "seed",
        "stop_ids",
        "token_ids",
        "uid",
    )

    def __init__(
        self, generate: Generate, arrival: int, options: SchedulerOptions, root: Node
    ) -> None:
        params = generate.params
        self.uid = generate.uid
        self.arrival = arrival
        self.generate = generate
        self.params = params
        self.prompt_len = len(generate.prompt_ids)
        self.token_ids = list(generate.prompt_ids)
        self.max_new_tokens = options.max_new_tokens(generate)
        self.seed = params.sampling_seed or 0
        stop_ids = frozenset(params.stop_token_ids)
        self.stop_ids = stop_ids if params.ignore_eos else stop_ids | options.eos_token_ids
        self.interval = _interval(generate, options)
        self.pages: list[int] = []
        self.node = root
        self.found = root
        self.num_computed = 0
        self.cached_tokens: int | None = None
        self.num_retractions = 0
        self.num_overtaken = 0
        self.next_input = self.prompt_len
        self.input_logprobs: list[PositionLogprobs] | None = None
        self.output_logprobs: list[PositionLogprobs] | None = None
        if generate.logprobs is not None:
            self.output_logprobs = []
            if generate.logprobs.start_len >= 0:
                self._want_inputs(generate.logprobs.start_len)
        self.num_sent = 0
        self.is_opened = False

    @property
    def num_output(self) -> int:
        """Tokens of the answer so far."""
        return len(self.token_ids) - self.prompt_len

    @property
    def num_uncomputed(self) -> int:
        """Tokens that must still be computed before the next one can be sampled."""
        return len(self.token_ids) - self.num_computed

    @property
    def num_reusable(self) -> int:
        """Leading tokens that may come from the cache.

        The last token is always computed, for its logits; and so is the token before the first
        prompt position whose log-probabilities are wanted.
        """
        if self.next_input < self.prompt_len:
            return self.next_input - 1
        return len(self.token_ids) - 1

    @property
    def is_answered(self) -> bool:
        """True when no step is needed: no token is wanted and all records are there."""
        return self.max_new_tokens == 0 and self.next_input == self.prompt_len

    @property
    def has_due_output(self) -> bool:
        """True when there are enough unsent tokens for an output."""
        num_unsent = self.num_output - self.num_sent
        if self.interval == 0 or num_unsent == 0:
            return False
        return num_unsent >= self.interval or not self.is_opened

    def _want_inputs(self, start_len: int) -> None:
        self.input_logprobs = []
        self.next_input = min(start_len, self.prompt_len)
        if start_len == 0:
            # Nothing stands before the first token, so it has no distribution.
            self.input_logprobs.append(PositionLogprobs((None, self.token_ids[0])))
            self.next_input = 1


def _interval(generate: Generate, options: SchedulerOptions) -> int:
    # A stop in the text is found by the detokenizer, which must see every token at once.
    if generate.params.has_text_stops:
        return 1
    if not generate.stream:
        return 0
    return generate.params.stream_interval or options.stream_interval
