"""To the front end: text deltas from the detokenizer, replies and greetings; append fields last."""

from typing import Any

import msgspec

from headwater.messages.tokens import Finish

__all__ = [
    "ControlReply",
    "ModelCard",
    "Ready",
    "TextBatch",
    "TextDelta",
    "ToFrontEnd",
    "TokenLogprob",
    "TokenLogprobs",
]


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """One token with its log-probability (None: no distribution), text and bytes.

    `text` and `raw` are set only when token texts were asked for; `text` is the token decoded by
    itself, `raw` its bytes, which for a piece of a character are not UTF-8.
    """

    logprob: float | None
    id: int
    text: str | None = None
    raw: bytes | None = None


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """One position: the token there, its alternatives and the ids asked for."""

    token: TokenLogprob
    top: list[TokenLogprob] | None = None
    picked: list[TokenLogprob] | None = None


class TextDelta(msgspec.Struct, frozen=True, array_like=True):
    """What one answer gained since its last delta.

    Deltas join: `text` and `ids` of all of them, in order, are the answer's text and ids. Ids come
    with the delta that carries the last of their text, so a chunk's ids and text agree.

    Attributes:
        uid: Number of the answer.
        text: New text, stop trimmed.
        ids: New output ids, a stop or end token included.
        finish: Set in the last delta, which always comes, exactly once.
        prompt_tokens: Length of the prompt.
        completion_tokens: Length of the answer so far, the stop token counted once.
        cached_tokens: Prompt tokens taken from the prefix cache.
        num_retractions: Times the request was retracted so far.
        input_logprobs: With the first delta, when asked for.
        output_logprobs: One entry for each of `ids`, or None when not asked for.
        trimmed_ids: How many of the last `ids` have no text because they are the matched stop.
    """

    uid: int
    text: str
    ids: list[int]
    finish: Finish | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    num_retractions: int = 0
    input_logprobs: list[TokenLogprobs] | None = None
    output_logprobs: list[TokenLogprobs] | None = None
    trimmed_ids: int = 0


class TextBatch(msgspec.Struct, frozen=True, array_like=True, tag="text"):
    """All deltas that one detokenizer step made."""

    deltas: list[TextDelta]


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker tells about the model it serves.

    Attributes:
        architecture: Class name in the model's config.
        model_type: Family name in the model's config.
        vocab_size: Rows of the output layer; token ids lie in [0, vocab_size).
        context_length: Most tokens in prompt plus answer.
        eos_token_ids: Tokens that end an answer.
        dtype: Precision of weights and cache.
        num_parameters: Weights, tied ones counted once.
        weight_bytes: Memory of the weights as kept.
        max_total_tokens: Tokens in the KV cache.
        page_size: Tokens in a page.
        load_time_s: Seconds from start to ready.
    """

    architecture: str
    model_type: str
    vocab_size: int
    context_length: int
    eos_token_ids: list[int]
    dtype: str
    num_parameters: int
    weight_bytes: int
    max_total_tokens: int
    page_size: int
    load_time_s: float


class Ready(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="ready"):
    """A child process is up.

    Attributes:
        process: `worker`, or a detokenizer's name.
        version: Version of the message vocabulary it speaks.
        card: The model (worker only).
    """

    process: str
    version: int
    card: ModelCard | None = None


class ControlReply(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="reply"):
    """Answer to a control message.

    Attributes:
        seq: The control message's number.
        ok: It was done.
        message: Why not, or what was done.
        data: Counts, for `GetState`.
    """

    seq: int
    ok: bool
    message: str = ""
    data: dict[str, Any] = {}


ToFrontEnd = TextBatch | Ready | ControlReply
