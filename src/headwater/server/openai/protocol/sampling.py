"""What chat and text completions have in common in a request."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from annotated_types import MaxLen
from pydantic import SkipValidation

from headwater.server.openai.protocol.base import RequestModel, optional

__all__ = ["BOUNDED", "GenerationRequest", "StreamOptions"]

# Far above the native limits: a million wrong entries must not become a million errors.
BOUNDED = MaxLen(4096)
Strings = Annotated[list[str], BOUNDED]


class StreamOptions(RequestModel):
    """Options of a stream."""

    include_usage: bool | None = optional("send a last chunk with the token counts")
    continuous_usage_stats: bool | None = optional("send the counts so far in every chunk")


class GenerationRequest(RequestModel):
    """Fields that both endpoints take. Absent sampling fields have the model's own defaults."""

    # Fields that native sampling parameters have under another name.
    renamed: ClassVar[dict[str, str]] = {
        "seed": "sampling_seed",
        "min_tokens": "min_new_tokens",
        "include_stop_str_in_output": "no_stop_trim",
    }
    # Fields that native sampling parameters have under the same name.
    same: ClassVar[tuple[str, ...]] = (
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "stop",
        "stop_token_ids",
        "stop_regex",
        "no_stop_trim",
        "ignore_eos",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "logit_bias",
        "n",
        "stream_interval",
    )

    model: str | None = optional("name of the model; absent or `default` is the one served")
    n: int | None = optional("number of answers", examples=[1])
    max_tokens: int | None = optional("most tokens of an answer", examples=[64])
    temperature: float | None = optional("0 is greedy", examples=[0.7])
    top_p: float | None = optional("nucleus mass in (0, 1]")
    frequency_penalty: float | None = optional("in [-2, 2], times the count of the token")
    presence_penalty: float | None = optional("in [-2, 2], once if the token is there")
    seed: int | None = optional("seed of the sampling noise: the same seed, the same answer")
    stop: str | Strings | None = optional("strings that end the answer and are left out of it")
    # Checked with the native parameters, which stop at the first wrong entry.
    logit_bias: SkipValidation[dict[str, float]] | None = optional(
        "token id to a number added to its logit"
    )
    stream: bool | None = optional("send server-sent events")
    stream_options: StreamOptions | None = optional("only with stream: true")
    user: str | None = optional("accepted, not used")
    metadata: dict[str, Any] | None = optional("accepted, not used")
    store: bool | None = optional("accepted, not used: nothing is stored")
    service_tier: str | None = optional("accepted, not used")

    # Extensions, with the names that SGLang and vLLM give them.
    top_k: int | None = optional("number of candidates; -1 for all")
    min_p: float | None = optional("least probability relative to the best token's")
    repetition_penalty: float | None = optional("in (0, 2], over prompt and answer")
    min_tokens: int | None = optional("tokens before any stop counts")
    stop_token_ids: Annotated[list[int], BOUNDED] | None = optional("token ids that end the answer")
    stop_regex: str | Strings | None = optional("patterns that end the answer")
    include_stop_str_in_output: bool | None = optional("keep the matched stop in the text")
    no_stop_trim: bool | None = optional("the same, as SGLang calls it")
    ignore_eos: bool | None = optional("go on after the model's end token")
    skip_special_tokens: bool | None = optional("leave special tokens out of the text")
    spaces_between_special_tokens: bool | None = optional("put spaces between special tokens")
    stream_interval: int | None = optional("decode steps between two chunks")
    return_token_ids: bool | None = optional("return token ids of prompt and answer")
    rid: str | None = optional("name of the request, to abort it; becomes the answer's id")
    cache_salt: str | None = optional("share cached prefixes only with requests of this salt")

    def sampling_values(self) -> dict[str, Any]:
        """The sampling fields that were given, under their native names."""
        found = {name: getattr(self, name) for name in self.same}
        found |= {ours: getattr(self, theirs) for theirs, ours in self.renamed.items()
                  if getattr(self, theirs) is not None}  # fmt: skip
        return {name: value for name, value in found.items() if value is not None}

    def stops_with(self, more: Sequence[str]) -> dict[str, list[str]]:
        """`stop` with the strings that a conversation format adds; nothing when it adds none."""
        own = [self.stop] if isinstance(self.stop, str) else list(self.stop or ())
        return {"stop": [*own, *more]} if more else {}
