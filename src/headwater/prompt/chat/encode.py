"""Rendered chat to ids, so that a user's words cannot become control tokens.

While a template renders, each special token's text inside a message is broken by a private
character, which is taken out again piece by piece when the text is encoded: the user's
`<|im_end|>` becomes the ids of its letters, the template's own becomes the control token.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater.text.tokenizer import Tokenizer

__all__ = ["encode_chat", "guard_messages"]

# Not a character: Unicode reserves it for internal use, and messages that hold it lose it.
_GUARD = "\ufdd0"


def guard_messages(
    messages: Sequence[Mapping[str, Any]], special: Iterable[str]
) -> list[dict[str, Any]]:
    """Copies of the messages in which no special token's text is whole.

    Args:
        messages: Checked messages.
        special: Texts of the tokenizer's special tokens.
    """
    words = sorted((word for word in special if len(word) > 1), key=len, reverse=True)

    def guard(value: Any) -> Any:
        if isinstance(value, str):
            value = value.replace(_GUARD, "")
            for word in words:
                if word in value:
                    value = value.replace(word, word[0] + _GUARD + word[1:])
            return value
        if isinstance(value, list):
            return [guard(item) for item in value]
        if isinstance(value, dict):
            return {key: guard(item) for key, item in value.items()}
        return value

    return [{**guard(dict(m)), "role": m["role"]} for m in messages]


def encode_chat(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a rendered chat; the template has put the special tokens, none is added.

    Args:
        tokenizer: The model's tokenizer.
        text: Rendered from guarded messages.
    """
    if _GUARD not in text:
        return tokenizer.encode(text, add_special_tokens=False)
    ids: list[int] = []
    for piece, special_id in tokenizer.split_special(text):
        if special_id is not None:
            ids.append(special_id)
        else:
            ids += tokenizer.encode_plain(piece.replace(_GUARD, ""))
    return ids
