"""Log-probabilities with the text and bytes of their tokens; it knows no request."""

from collections.abc import Sequence

from headwater.messages.text import TokenLogprob, TokenLogprobs
from headwater.messages.tokens import PositionLogprobs
from headwater.text.tokenizer import Tokenizer

__all__ = ["with_texts"]


def with_texts(
    positions: Sequence[PositionLogprobs], tokenizer: Tokenizer | None
) -> list[TokenLogprobs]:
    """Add texts to the positions; without a tokenizer only ids and numbers are passed on.

    Each token is decoded by itself, so the text of a piece of a character is not its real text;
    its bytes are.
    """

    def entry(logprob: float | None, token_id: int) -> TokenLogprob:
        if tokenizer is None:
            return TokenLogprob(logprob, token_id)
        return TokenLogprob(
            logprob, token_id, tokenizer.token_text(token_id), tokenizer.token_bytes(token_id)
        )

    def entries(pairs: list[tuple[float, int]] | None) -> list[TokenLogprob] | None:
        return None if pairs is None else [entry(*pair) for pair in pairs]

    return [TokenLogprobs(entry(*p.token), entries(p.top), entries(p.picked)) for p in positions]
