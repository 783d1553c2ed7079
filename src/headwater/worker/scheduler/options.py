"""What the scheduler is told once, and which requests can never run under it."""

from dataclasses import dataclass

from headwater.errors import ContextLengthExceeded, HeadwaterError, InvalidRequest
from headwater.messages.requests import Generate
from headwater.worker.cache.pages import num_pages_for

__all__ = ["SchedulerOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """The scheduler's settings; `headwater.config` has the user's view of them.

    Attributes:
        num_pages: Pages of the KV pool.
        page_size: Tokens in a page.
        context_length: Most tokens in prompt plus answer.
        eos_token_ids: Tokens that end an answer.
        max_running_requests: Most requests that hold pages.
        max_queued_requests: Most requests that wait beyond those that could run; None: no bound.
        chunked_prefill_size: Token budget of a step.
        schedule_policy: `lpm`, longest cached prefix first, or `fcfs`.
        disable_radix_cache: Do not share pages between requests.
        stream_interval: Decode steps between two outputs of a stream.
        max_wait_steps: Steps in which later requests may start before one that waits; after
            that it goes first.
    """

    num_pages: int
    page_size: int
    context_length: int
    eos_token_ids: frozenset[int] = frozenset()
    max_running_requests: int = 64
    max_queued_requests: int | None = None
    chunked_prefill_size: int = 512
    schedule_policy: str = "lpm"
    disable_radix_cache: bool = False
    stream_interval: int = 1
    max_wait_steps: int = 32

    def max_new_tokens(self, generate: Generate) -> int:
        """Most tokens of the answer: what was asked for, and no more than the context holds."""
        room = max(self.context_length - len(generate.prompt_ids), 0)
        asked = generate.params.max_new_tokens
        return room if asked is None else min(asked, room)

    def refusal(self, generate: Generate) -> HeadwaterError | None:
        """Why a request can never run here, or None.

        The front end checks the same before it sends a request; this is the second lock on the
        door, because a request that cannot fit would hold up everything behind it.
        """
        prompt_len = len(generate.prompt_ids)
        if prompt_len == 0:
            return InvalidRequest("the prompt has no tokens; at least one is needed")
        most = self.context_length - (generate.params.max_new_tokens != 0)
        if prompt_len > most:
            return ContextLengthExceeded(
                f"the prompt has {prompt_len} tokens; at most {most} leave room for an answer "
                f"in the context of {self.context_length} tokens"
            )
        # The last token of an answer is never an input, so it needs no place in the cache.
        num_tokens = prompt_len + max(self.max_new_tokens(generate) - 1, 0)
        need = num_pages_for(num_tokens, self.page_size)
        if need > self.num_pages:
            return InvalidRequest(
                f"prompt and answer need {need} KV pages of {self.page_size} tokens; "
                f"the pool has {self.num_pages}"
            )
        return None
