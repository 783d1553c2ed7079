"""Front end to worker: new requests, aborts and control; append new fields last.

`uid` is a number the front end gives to each answer it wants; it is never used twice, so a late
message about an old request cannot be taken for a new one. `rid` is the client's name for it.
"""

import msgspec

from headwater.messages.params import SamplingParams

__all__ = [
    "MAX_LOGPROBS",
    "MAX_REPORTED",
    "Abort",
    "CheckIntegrity",
    "FlushCache",
    "Generate",
    "GetState",
    "LogprobSpec",
    "Stop",
    "ToWorker",
]

MAX_LOGPROBS = 1024  # tokens that are reported at each position, of either kind
MAX_REPORTED = 1 << 21  # and at all positions that a request asks for


class LogprobSpec(msgspec.Struct, frozen=True, array_like=True):
    """Which log-probabilities a request wants.

    Attributes:
        start_len: First prompt position to report; -1 means output tokens only.
        top_num: Most likely alternatives at each position.
        token_ids: Ids whose log-probability is reported at each position.
        with_text: Decode every reported token by itself.
    """

    start_len: int = -1
    top_num: int = 0
    token_ids: list[int] = []
    with_text: bool = False


class Generate(msgspec.Struct, frozen=True, array_like=True, tag="generate"):
    """Generate one answer to one prompt (`n` has been expanded by the front end).

    Attributes:
        uid: Number of this answer.
        rid: The client's name for it, for logs.
        prompt_ids: Token ids, at least one; prompt plus answer fit the context.
        params: Checked parameters; `max_new_tokens` and `sampling_seed` are set.
        logprobs: What to report, or None for nothing.
        stream: Intermediate results are wanted; else only the end matters.
        cache_salt: Requests share cached prefixes only with requests of the same salt.
    """

    uid: int
    rid: str
    prompt_ids: list[int]
    params: SamplingParams
    logprobs: LogprobSpec | None = None
    stream: bool = True
    cache_salt: str = ""


class Abort(msgspec.Struct, frozen=True, array_like=True, tag="abort"):
    """Stop these requests; each still gets its final output, with finish reason `abort`."""

    uids: list[int]
    message: str = "aborted"


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """From the detokenizer: the answer's text ended with its `num_ids`-th id.

    Tokens that the worker made after that do not belong to the answer.
    """

    uid: int
    num_ids: int


class FlushCache(msgspec.Struct, frozen=True, array_like=True, tag="flush_cache"):
    """Empty the prefix cache if no request runs or waits; answered by `ControlReply`."""

    seq: int


class CheckIntegrity(msgspec.Struct, frozen=True, array_like=True, tag="check_integrity"):
    """Check that every page, slot and lock has exactly one owner; answered by `ControlReply`."""

    seq: int


class GetState(msgspec.Struct, frozen=True, array_like=True, tag="get_state"):
    """Report counts (running, waiting, pages in use ...); answered by `ControlReply`."""

    seq: int


ToWorker = Generate | Abort | Stop | FlushCache | CheckIntegrity | GetState
