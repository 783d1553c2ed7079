"""Worker to detokenizer: new token ids, one message a step for all requests; append fields last."""

import msgspec

__all__ = [
    "Finish",
    "InputLogprobs",
    "Opening",
    "PositionLogprobs",
    "ToDetokenizer",
    "TokenBatch",
    "TokenOutput",
]


class Finish(msgspec.Struct, frozen=True, array_like=True):
    """Why an answer ended.

    Attributes:
        type: `stop`, `length`, `abort` or `error`. The worker's `stop` with `matched` None
            confirms a `Stop` message.
        matched: Token id or stop text that ended it (`stop` only).
        length: Output length at which it ended (`length` only).
        message: What happened (`abort` and `error`).
        code: Error code of `headwater.errors` (`error` only).
        param: The field of the request at fault (`error` only).
    """

    type: str
    matched: int | str | None = None
    length: int | None = None
    message: str | None = None
    code: str | None = None
    param: str | None = None


class PositionLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities at one position, as (logprob, token id) pairs.

    Attributes:
        token: The token that stands there; logprob None for the first prompt token.
        top: Most likely alternatives, best first; None where there is no distribution.
        picked: The ids asked for, in the order asked; None where there is no distribution.
    """

    token: tuple[float | None, int]
    top: list[tuple[float, int]] | None = None
    picked: list[tuple[float, int]] | None = None


class Opening(msgspec.Struct, frozen=True, array_like=True):
    """What the detokenizer must know of a request; it comes with the request's first output.

    Attributes:
        context_ids: The last prompt ids, as left context.
        skip_special_tokens: Leave special tokens out of the text.
        spaces_between_special_tokens: Put a space between adjacent special tokens.
        stop: Stop strings.
        stop_regex: Stop patterns.
        no_stop_trim: Keep the matched stop in the text.
        min_new_tokens: A stop that completes before this many ids does not count.
        logprob_text: Decode the tokens of log-probabilities.
        stream: Text is wanted as it comes; else once, with the finish.
        prompt_tokens: Length of the prompt.
    """

    context_ids: list[int]
    skip_special_tokens: bool
    spaces_between_special_tokens: bool
    stop: list[str]
    stop_regex: list[str]
    no_stop_trim: bool
    min_new_tokens: int
    logprob_text: bool
    stream: bool
    prompt_tokens: int


class InputLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities of the prompt from the position asked for, in order."""

    positions: list[PositionLogprobs]


class TokenOutput(msgspec.Struct, frozen=True, array_like=True):
    """What one request gained since its last output.

    Attributes:
        uid: Number of the answer.
        ids: New output ids, a stop or end token included.
        finish: Set in the last output of a request, which always comes, exactly once.
        cached_tokens: Prompt tokens taken from the prefix cache at first admission.
        num_retractions: Times the request was retracted so far.
        opening: Set in the first output of a request.
        input_logprobs: Set in the first output when prompt positions were asked for.
        output_logprobs: One entry for each of `ids`, or None when not asked for.
        trim_ids: How many of the last ids are a matched stop or end token, which is not text.
        version: Another value than before says that `ids` and `output_logprobs` are the whole
            answer, in place of everything sent so far (jump-forward, replay).
    """

    uid: int
    ids: list[int]
    finish: Finish | None = None
    cached_tokens: int = 0
    num_retractions: int = 0
    opening: Opening | None = None
    input_logprobs: InputLogprobs | None = None
    output_logprobs: list[PositionLogprobs] | None = None
    trim_ids: int = 0
    version: int = 0


class TokenBatch(msgspec.Struct, frozen=True, array_like=True, tag="tokens"):
    """All outputs of one step."""

    outputs: list[TokenOutput]


ToDetokenizer = TokenBatch
