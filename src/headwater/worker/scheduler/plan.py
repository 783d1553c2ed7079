"""What the scheduler tells the runner to compute in one step, and what it gets back.

Plain data: this module knows neither torch nor requests' states. The runner keeps no copy of a
request; everything it needs for a row is in the row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.messages.params import SamplingParams
from headwater.messages.requests import LogprobSpec
from headwater.messages.tokens import PositionLogprobs

__all__ = ["Row", "RowResult", "StepPlan", "StepResult"]


@dataclass(slots=True, frozen=True)
class Row:
    """One request's part of a step: some of its tokens, and whether one is sampled.

    Attributes:
        uid: The request.
        token_ids: All ids of the request so far, prompt and answer; not to be changed.
        start: Position of the first token to compute; keys and values of [0, start) are in pages.
        end: Position after the last token to compute; end - start >= 1 tokens are computed.
        pages: Page numbers in order; they cover [0, end).
        prompt_len: Length of the prompt; ids from there on are the answer.
        params: Sampling parameters.
        seed: Seed of the request's noise, 64 bits.
        samples: The token after `end` is to be sampled (else this is an inner prompt chunk).
        eos_ids: Ids masked while the answer is shorter than `params.min_new_tokens`.
        logprobs: What to report for the sampled token, or None.
        input_from: First position p in (start, end] at which log-probabilities of the token that
            *stands* at p (p < prompt_len) are wanted, from the logits of position p - 1; None
            for none. All later positions of this chunk that are in the prompt are wanted too.
    """

    uid: int
    token_ids: Sequence[int]
    start: int
    end: int
    pages: Sequence[int]
    prompt_len: int
    params: SamplingParams
    seed: int
    samples: bool
    eos_ids: frozenset[int]
    logprobs: LogprobSpec | None
    input_from: int | None


@dataclass(slots=True, frozen=True)
class StepPlan:
    """All rows of a step; never empty."""

    rows: list[Row]


@dataclass(slots=True, frozen=True)
class RowResult:
    """What a row gave.

    Attributes:
        token_id: The sampled id, or None for an inner prompt chunk.
        logprobs: The sampled token's position, when asked for.
        input_logprobs: Prompt positions of this chunk, when asked for, in order.
        error: What went wrong with this row alone (non-finite logits); the request ends with it.
    """

    token_id: int | None
    logprobs: PositionLogprobs | None = None
    input_logprobs: list[PositionLogprobs] | None = None
    error: str | None = None


@dataclass(slots=True, frozen=True)
class StepResult:
    """One result for each row of the plan, in its order."""

    rows: list[RowResult]
