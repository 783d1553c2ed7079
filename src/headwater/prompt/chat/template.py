"""Chat templates: messages to prompt text, in jinja2's sandbox.

Options, globals and filters are those of transformers' `apply_chat_template`, so a model's own
template renders the same text. It knows messages as dicts, no HTTP.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox

from headwater.errors import InvalidRequest, ModelLoadError

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


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's text; here it is just text."""

    tags = {"generation"}  # noqa: RUF012  # jinja2's own declaration is like that

    def parse(self, parser: Any) -> Any:
        """Replace the block by its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _TemplateRefusal(Exception):
    """The template called `raise_exception`."""


def _raise_exception(message: str) -> None:
    raise _TemplateRefusal(message)


def _tojson(value: Any, indent: int | None = None, **options: Any) -> str:
    # jinja2's own filter escapes <, > and &, which a prompt must not.
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _GenerationBlock],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: Jinja source.
        special_tokens: `bos_token`, `eos_token` ... as the template's variables.

    Raises:
        ModelLoadError: The source is not a template.
    """

    def __init__(self, source: str, *, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as err:
            raise ModelLoadError(f"the chat template is not valid: {err}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Render a conversation.

        Args:
            messages: Checked messages.
            add_generation_prompt: End with what opens the assistant's turn.
            continue_final_message: Leave the last message open, to be continued.
            variables: More variables for the template.

        Raises:
            InvalidRequest: The template refuses the messages; the text is the template's.
        """
        names = {
            **self._special_tokens,
            **(variables or {}),
            "messages": messages,
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
        }
        try:
            text = self._template.render(names)
        except _TemplateRefusal as err:
            raise InvalidRequest(f"the chat template: {err}", param="messages") from None
        # A template is a program; what it cannot do with these messages shows in many types.
        except _RENDER_ERRORS as err:
            raise InvalidRequest(
                f"the chat template cannot render these messages: {err}", param="messages"
            ) from None
        return _cut_after(text, messages[-1]) if continue_final_message else text


def _cut_after(text: str, message: Mapping[str, Any]) -> str:
    """The text up to the end of the last message's content."""
    content = str(message.get("content") or "").strip()
    index = text.rindex(content) if content and content in text else -1
    if index < 0:
        raise InvalidRequest(
            "continue_final_message: the template does not show the final message as it is",
            param="continue_final_message",
        )
    return text[: index + len(content)]
