"""Log-probabilities in the form of `/v1/completions`: tokens that join to the text, and offsets."""

import codecs
from collections.abc import Collection, Sequence
from typing import Any

from headwater.messages.text import TokenLogprob, TokenLogprobs

__all__ = ["CompletionLogprobs", "token_string"]


def token_string(token: TokenLogprob) -> str:
    r"""The token's text; OpenAI's `bytes:\x..` form where it is a piece of a character."""
    raw = token.raw or b""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


class CompletionLogprobs:
    """Renders the records of one choice, delta by delta, and counts characters for `text_offset`.

    Args:
        hidden_ids: Tokens that the text leaves out.
    """

    def __init__(self, hidden_ids: Collection[int]) -> None:
        self._hidden_ids = hidden_ids
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0
        self._is_first = True

    def render(self, records: Sequence[TokenLogprobs], text: str) -> dict[str, Any]:
        """The four arrays for some tokens.

        Args:
            records: The next tokens.
            text: Their text.
        """
        out: dict[str, Any] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for record in records:
            token = self._as_shown(record.token, text)
            name = token_string(token)
            out["tokens"].append(name)
            out["token_logprobs"].append(token.logprob)
            out["top_logprobs"].append(_top(record, name))
            out["text_offset"].append(self._offset)
            if token.id not in self._hidden_ids:
                self._offset += len(self._utf8.decode(token.raw or b""))
        return out

    def _as_shown(self, token: TokenLogprob, text: str) -> TokenLogprob:
        """The token; decoders drop the space before the first word, so the first loses it."""
        if not self._is_first or token.id in self._hidden_ids:
            return token
        self._is_first = False
        raw = token.raw or b""
        if not raw.startswith(b" ") or text.startswith(" "):
            return token
        return TokenLogprob(token.logprob, token.id, token.text, raw[1:])


def _top(record: TokenLogprobs, name: str) -> dict[str, float | None] | None:
    """Alternatives by text; the token itself is always among them."""
    if record.top is None:
        return None
    found: dict[str, float | None] = {}
    for token in record.top:
        found.setdefault(token_string(token), token.logprob)
    found.setdefault(name, record.token.logprob)
    return found
