"""What the front end is asked for and what it gives back; no HTTP word in it."""

from dataclasses import dataclass, field

from headwater.messages.params import SamplingParams
from headwater.messages.requests import LogprobSpec
from headwater.messages.text import TextDelta, TokenLogprobs
from headwater.messages.tokens import Finish

__all__ = ["Answer", "GenerateRequest"]


@dataclass(slots=True, frozen=True, kw_only=True)
class GenerateRequest:
    """One prompt, and how to answer it; `params.n` answers are made.

    Attributes:
        params: Checked sampling parameters.
        text: The prompt as text; exactly one of `text` and `input_ids` is set.
        input_ids: The prompt as token ids.
        add_special_tokens: Let the tokenizer add its own (BOS); only for `text`.
        rid: The client's name for the request; None draws one. Answer k of n > 1 is `<rid>_<k>`.
        logprobs: Log-probabilities to report.
        stream: Deltas are wanted as they come; else one delta with everything.
        cache_salt: Namespace of the prefix cache.
        prompt_param: Name of the prompt's field, for errors.
        max_new_tokens_param: Name of the answer's length, for errors.
        is_max_new_tokens_explicit: The client set the answer's length: too much is an error, where
            a default is cut to what fits.
    """

    params: SamplingParams
    text: str | None = None
    input_ids: list[int] | None = None
    add_special_tokens: bool = True
    rid: str | None = None
    logprobs: LogprobSpec | None = None
    stream: bool = False
    cache_salt: str = ""
    prompt_param: str = "text"
    max_new_tokens_param: str = "sampling_params.max_new_tokens"
    is_max_new_tokens_explicit: bool = False


@dataclass(slots=True)
class Answer:
    """One answer, folded from its deltas.

    Attributes:
        text: Text so far.
        ids: Output ids so far, the stop token included.
        finish: None while it runs.
    """

    text: str = ""
    ids: list[int] = field(default_factory=list)
    finish: Finish | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    num_retractions: int = 0
    trimmed_ids: int = 0
    input_logprobs: list[TokenLogprobs] | None = None
    output_logprobs: list[TokenLogprobs] | None = None

    def add(self, delta: TextDelta) -> None:
        """Append a delta: the answer as a whole is the fold of its deltas."""
        self.text += delta.text
        self.ids += delta.ids
        self.finish = delta.finish
        self.prompt_tokens = delta.prompt_tokens
        self.completion_tokens = delta.completion_tokens
        self.cached_tokens = delta.cached_tokens
        self.num_retractions = delta.num_retractions
        self.trimmed_ids = delta.trimmed_ids
        if delta.input_logprobs is not None:
            self.input_logprobs = delta.input_logprobs
        if delta.output_logprobs is not None:
            self.output_logprobs = (self.output_logprobs or []) + delta.output_logprobs
