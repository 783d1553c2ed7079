"""Fill-in-the-middle prompts: what stands before and after the answer, between control tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import NotSupported
from headwater.text.tokenizer import Tokenizer

__all__ = ["INFILL_FORMATS", "InfillFormat", "encode_infill"]


@dataclass(slots=True, frozen=True)
class InfillFormat:
    """The control tokens of a family of models.

    Attributes:
        prefix: Stands before the prefix.
        suffix: Stands before the suffix.
        middle: Stands before the answer; empty where the prefix comes last and the answer follows.
    """

    prefix: str
    suffix: str
    middle: str


INFILL_FORMATS = (
    InfillFormat("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder
    InfillFormat("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, SantaCoder's heirs
    InfillFormat("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    InfillFormat("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001  # DeepSeek
    InfillFormat("[PREFIX]", "[SUFFIX]", ""),  # Codestral
)


def encode_infill(tokenizer: Tokenizer, prefix: str | Sequence[int], suffix: str) -> list[int]:
    """Ids of a prompt whose answer belongs between prefix and suffix.

    Args:
        tokenizer: The model's tokenizer.
        prefix: Text or ids before the answer.
        suffix: Text after it.

    Raises:
        NotSupported: The model has no tokens for it.
    """
    for form in INFILL_FORMATS:
        ids = [tokenizer.id_of(word) for word in (form.prefix, form.suffix, form.middle) if word]
        if None not in ids:
            break
    else:
        raise NotSupported("this model has no fill-in-the-middle tokens", param="suffix")
    before, after, *middle = ([token_id] for token_id in ids if token_id is not None)
    before += tokenizer.encode_plain(prefix) if isinstance(prefix, str) else prefix
    after += tokenizer.encode_plain(suffix)
    opening = tokenizer.encode("")  # BOS, where the tokenizer adds one
    return opening + (before + after + middle[0] if middle else after + before)
