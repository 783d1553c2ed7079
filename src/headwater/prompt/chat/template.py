"""Chat templates in Jinja: messages to the text that transformers' `apply_chat_template` gives.

It knows messages as dicts, no HTTP.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from headwater.errors import InvalidRequest, ModelLoadError
from headwater.prompt.chat.content_format import detect_content_format
from headwater.prompt.chat.format import ContentFormat, RenderedChat
from headwater.prompt.chat.sandbox import TemplateRefusal, make_environment, time_limit

__all__ = ["ChatTemplate"]


_RENDER_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_RENDER_TIMEOUT_S = 2.0  # far more than a conversation that fills a context needs
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt")
# Ends a final message that is to be continued. Not a character, so no text holds it; the space
# tells whether the template trims contents.
_MARK = "\ufdd1"


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: Jinja source.
        special_tokens: `bos_token`, `eos_token` ... as the template's variables.
        content_format: The form of content; None finds out from the source.

    Attributes:
        source: Jinja source.

    Raises:
        ModelLoadError: The source is not a template.
    """

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, str],
        content_format: ContentFormat | None = None,
    ) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        environment = make_environment()
        try:
            self._template = environment.from_string(source)
            self._content_format = content_format or detect_content_format(
                environment.parse(source)
            )
        # Python refuses what is nested too deep.
        except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError) as err:
            raise ModelLoadError(f"the chat template is not valid: {err}") from None

    @property
    def content_format(self) -> ContentFormat:
        """The form in which it takes contents."""
        return self._content_format

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> RenderedChat:
        """Render a conversation; see `ChatFormat.render`.

        Raises:
            InvalidRequest: The template refuses the messages; the text is the template's.
        """
        for name in _RESERVED:
            if name in (variables or {}):
                raise InvalidRequest(
                    f"{name} is not a variable of the template's own",
                    param=f"chat_template_kwargs.{name}",
                )
        names = {
            **self._special_tokens,
            **(variables or {}),
            "messages": _marked(messages) if continue_final_message else messages,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
        }
        text = self._render(names)
        return RenderedChat(text=_cut(text, messages[-1]) if continue_final_message else text)

    def _render(self, names: Mapping[str, Any]) -> str:
        try:
            with time_limit(_RENDER_TIMEOUT_S):
                return self._template.render(names)
        except TemplateRefusal as err:
            raise InvalidRequest(f"the chat template: {err}", param="messages") from None
        # A template is a program; what it cannot do with these messages shows in many types.
        except _RENDER_ERRORS as err:
            raise InvalidRequest(
                f"the chat template cannot render these messages: {err}", param="messages"
            ) from None


def _last_text(message: dict[str, Any]) -> tuple[Any, Any]:
    """Where the text lies that ends a message: an object and a key in it."""
    content = message.get("content")
    if not isinstance(content, list):
        return message, "content"
    for part in reversed(content):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            return part, "text"
    raise InvalidRequest(
        "continue_final_message: the final message has no text", param="continue_final_message"
    )


def _marked(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages with a mark behind the text of the last."""
    final = copy.deepcopy(dict(messages[-1]))
    holder, key = _last_text(final)
    holder[key] = f"{holder.get(key) or ''}{_MARK} "
    return [*messages[:-1], final]


def _cut(text: str, message: Mapping[str, Any]) -> str:
    """The text up to the mark."""
    holder, key = _last_text(dict(message))
    index = text.rfind(_MARK)
    if index < 0 or (holder.get(key) or "").strip() not in text:
        raise InvalidRequest(
            "continue_final_message: the template does not show the final message as it is",
            param="continue_final_message",
        )
    is_kept = text.startswith(_MARK + " ", index)
    # Where the template trims contents, the text to be continued is trimmed as well.
    text = text[:index] if is_kept else text[:index].rstrip()
    return text.replace(_MARK + " ", "").replace(_MARK, "")  # a template may show a text twice
