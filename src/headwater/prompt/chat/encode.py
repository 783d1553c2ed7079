"""Rendered chat to ids, so that a user's words cannot become control tokens.

While a template renders, each special token's text inside a message is broken by a private
character, which is taken out again piece by piece when the text is encoded: the user's
`<|im_end|>` becomes the ids of its letters, the template's own becomes the control token.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater.prompt.chat.reuse import PieceCache
from headwater.text.tokenizer import Tokenizer

__all__ = ["encode_chat", "guard_messages", "guard_values"]

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
    words = _words(special)
    return [
        {**{key: _guarded(value, words) for key, value in m.items()}, "role": m["role"]}
        for m in messages
    ]


def guard_values(value: Any, special: Iterable[str]) -> Any:
    """The same for tools, documents and variables; names of fields inside are guarded as well."""
    return _guarded(value, _words(special))


def _words(special: Iterable[str]) -> list[str]:
    return sorted((word for word in special if len(word) > 1), key=len, reverse=True)


def _guarded(value: Any, words: Sequence[str]) -> Any:
    if isinstance(value, str):
        value = value.replace(_GUARD, "")
        for word in words:
            if word in value:
                value = value.replace(word, word[0] + _GUARD + word[1:])
        return value
    if isinstance(value, (list, tuple)):
        return [_guarded(item, words) for item in value]
    if isinstance(value, Mapping):
        return {_guarded(key, words): _guarded(item, words) for key, item in value.items()}
    return value


def encode_chat(tokenizer: Tokenizer, text: str, cache: PieceCache | None = None) -> list[int]:
    """Ids of a rendered chat; the template has put the special tokens, none is added.

    Args:
        tokenizer: The model's tokenizer.
        text: Rendered from guarded messages.
        cache: Ids of pieces that were encoded before.
    """
    if cache is None:
        return _encode_text(tokenizer, text)
    return cache.encode(tokenizer.cuts, text, lambda piece: _encode_text(tokenizer, piece))


def _encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    if _GUARD not in text:
        return tokenizer.encode(text, add_special_tokens=False)
    ids: list[int] = []
    for piece in tokenizer.cuts.split(text):  # the other turns are encoded as ever
        ids += (
            _encode_guarded(tokenizer, piece)
            if _GUARD in piece
            else tokenizer.encode(piece, add_special_tokens=False)
        )
    return ids


def _encode_guarded(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = []
    for piece, special_id in tokenizer.split_special(text):
        if special_id is not None:
            ids.append(special_id)
        else:
            ids += tokenizer.encode_plain(piece.replace(_GUARD, ""))
    return ids
