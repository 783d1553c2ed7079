"""From a client's messages to prompt ids: checks, the right format, guarding, encoding.

It knows no HTTP; which request asks for what is for its caller.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors import InvalidRequest, ModelLoadError, NotSupported
from headwater.prompt.chat.encode import encode_chat, guard_messages, guard_values
from headwater.prompt.chat.format import ChatFormat, ContentFormat
from headwater.prompt.chat.messages import normalize_messages
from headwater.prompt.chat.reuse import PieceCache
from headwater.prompt.chat.template import ChatTemplate
from headwater.text.tokenizer import Tokenizer

__all__ = ["ChatPrompt", "ChatPrompts"]

_REUSED_CHARS = 4_000_000
_MAX_REQUEST_TEMPLATES = 32
_MAX_TEMPLATE_CHARS = 200_000


@dataclass(slots=True, frozen=True)
class ChatPrompt:
    """A prompt made of messages.

    Attributes:
        ids: Token ids.
        stop: Strings that end the assistant's turn.
    """

    ids: list[int]
    stop: tuple[str, ...]


class ChatPrompts:
    """Makes prompts of messages; it can be used from several threads.

    Args:
        tokenizer: The model's tokenizer.
        formats: The formats by name: `default`, and perhaps `tool_use` and `rag`; may be empty.
        special_tokens: Variables of templates that requests bring.
        content_format: The form of contents in those; None finds out.
        trusts_requests: Whether requests may bring templates.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        formats: Mapping[str, ChatFormat],
        *,
        special_tokens: Mapping[str, str],
        content_format: ContentFormat | None = None,
        trusts_requests: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._formats = dict(formats)
        self._special_tokens = special_tokens
        self._content_format = content_format
        self._trusts_requests = trusts_requests
        self._compiled: OrderedDict[str, ChatTemplate] = OrderedDict()
        self._lock = threading.Lock()
        self._pieces = PieceCache(max_chars=_REUSED_CHARS)

    @property
    def has_format(self) -> bool:
        """Whether chats can be answered without a template in the request."""
        return bool(self._formats)

    def encode(
        self,
        messages: Any,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template: str | None = None,
        check_text: Callable[[str], None] | None = None,
    ) -> ChatPrompt:
        """Ids and stop strings of a conversation.

        Args:
            messages: As a client sent them.
            add_generation_prompt: End with what opens the assistant's turn.
            continue_final_message: Leave the last message open, to be continued.
            variables: More variables for the template.
            tools: Functions that the model may call.
            documents: Texts that the answer may use.
            template: Jinja source that the request brings.
            check_text: Called with the rendered text before it is encoded; may refuse it.

        Raises:
            InvalidRequest: A message is wrong, or the format refuses it.
            NotSupported: There is no format, or the request's template is not trusted.
        """
        template, variables = self._request_template(template, variables)
        _check_objects(documents, "documents")
        _check_objects(tools, "tools")
        chat_format = self._format(template, bool(tools), bool(documents))
        checked = normalize_messages(messages, chat_format.content_format)
        special = self._tokenizer.special_texts
        rendered = chat_format.render(
            guard_messages(checked, special),
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=guard_values(tools, special),
            documents=guard_values(documents, special),
            variables=guard_values(variables, special),
        )
        _check_characters(rendered.text)
        if check_text is not None:
            check_text(rendered.text)
        ids = encode_chat(self._tokenizer, rendered.text, self._pieces)
        if rendered.needs_bos:
            ids = [*self._tokenizer.leading_ids, *ids]
        return ChatPrompt(ids, rendered.stop)

    def _request_template(
        self, template: str | None, variables: Mapping[str, Any] | None
    ) -> tuple[str | None, dict[str, Any]]:
        """The template that a request brings, in either place, and the other variables."""
        others, param = dict(variables or {}), "chat_template"
        if others.get("chat_template") is not None:
            if template is not None:
                raise InvalidRequest("give one chat_template", param="chat_template")
            template, param = others["chat_template"], "chat_template_kwargs.chat_template"
        others.pop("chat_template", None)
        if template is None:
            return None, others
        if not self._trusts_requests:
            raise NotSupported(
                "this server takes no chat template from a request; start it with "
                "--trust-request-chat-template",
                param=param,
            )
        if not isinstance(template, str) or len(template) > _MAX_TEMPLATE_CHARS:
            raise InvalidRequest(
                f"a chat template is a string of at most {_MAX_TEMPLATE_CHARS} characters",
                param=param,
            )
        return template, others

    def _format(self, template: str | None, has_tools: bool, has_documents: bool) -> ChatFormat:
        if template is not None:
            return self._compile(template)
        if not self._formats:
            raise NotSupported(
                "this model has no chat template; start the server with --chat-template",
                param="messages",
            )
        for name, is_wanted in (("tool_use", has_tools), ("rag", has_documents)):
            if is_wanted and name in self._formats:
                return self._formats[name]
        return self._formats["default"]

    def _compile(self, source: str) -> ChatTemplate:
        """A request's template, compiled once as long as it is among the last ones."""
        with self._lock:
            found = self._compiled.get(source)
            if found is not None:
                self._compiled.move_to_end(source)
                return found
        try:
            found = ChatTemplate(
                source,
                special_tokens=self._special_tokens,
                content_format=self._content_format,
            )
        except ModelLoadError as err:
            raise InvalidRequest(err.message, param="chat_template") from None
        with self._lock:
            self._compiled[source] = found
            if len(self._compiled) > _MAX_REQUEST_TEMPLATES:
                self._compiled.popitem(last=False)
        return found


def _check_characters(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest(
            "the prompt holds half of a surrogate pair, which is no character", param="messages"
        ) from None


def _check_objects(values: Any, param: str) -> None:
    if values is not None and (
        not isinstance(values, (list, tuple)) or not all(isinstance(v, Mapping) for v in values)
    ):
        raise InvalidRequest(f"{param} must be a list of objects", param=param)
