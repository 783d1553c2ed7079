"""OpenAI's chat messages, checked and made plain for templates."""

import json
from collections.abc import Mapping
from typing import Any

from headwater.errors import InvalidRequest, NotSupported
from headwater.prompt.chat.format import ContentFormat

__all__ = ["ROLES", "normalize_messages"]

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_REASONING = ("reasoning_content", "thinking", "reasoning")
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_MEDIA_PARTS = (
    "image_url",
    "input_image",
    "image",
    "video_url",
    "audio_url",
    "input_audio",
    "file",
)


def normalize_messages(
    messages: Any, content_format: ContentFormat = "string"
) -> list[dict[str, Any]]:
    """Check messages; developer becomes system, fields that are null are left out.

    Args:
        messages: As a client sent them.
        content_format: `string` joins text parts, with nothing between; `openai` makes a list of
            `{"type": "text", "text": ...}` of every content; `any` keeps strings and lists, but
            joins the parts of a system message.

    Raises:
        InvalidRequest: A message is wrong; `param` is its path, `messages[2].role`.
    """
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages must be a list of at least one message", param="messages")
    return [_message(m, f"messages[{i}]", content_format) for i, m in enumerate(messages)]


def _message(message: Any, path: str, content_format: ContentFormat) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidRequest("a message must be an object", param=path)
    role = message.get("role")
    if role not in ROLES:
        known = ", ".join(ROLES)
        raise InvalidRequest(f"role must be one of {known}; got {role!r}", param=f"{path}.role")
    out = {k: value for k, value in message.items() if value is not None or k == "content"}
    out["role"] = "system" if role == "developer" else role
    out["content"] = _formed(_content(message, role, path), out["role"], content_format)
    if "tool_calls" in out:
        out["tool_calls"] = _tool_calls(out["tool_calls"], f"{path}.tool_calls")
    return _with_reasoning(out)


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Reasoning under the names that templates read, whatever name the client used."""
    given = [message[key] for key in _REASONING if key in message]
    return {"thinking": given[0], **message, "reasoning_content": given[0]} if given else message


def _formed(content: str | list[str], role: str, content_format: ContentFormat) -> Any:
    """Checked content in the form that the format wants."""
    # Templates that take both often take only a string as the system's.
    if content_format == "string" or (content_format == "any" and role == "system"):
        return "".join(content)
    if isinstance(content, str):
        if content_format == "any":
            return content
        content = [content] if content else []
    return [{"type": "text", "text": text} for text in content]


def _content(message: Mapping[str, Any], role: str, path: str) -> str | list[str]:
    content = message.get("content")
    if content is None:
        # An assistant that only called tools has no text.
        if role == "assistant":
            return ""
        raise InvalidRequest("content is missing", param=f"{path}.content")
    if isinstance(content, str):
        return _well_formed(content, f"{path}.content")
    if not isinstance(content, list):
        raise InvalidRequest("content must be a string or a list of parts", param=f"{path}.content")
    return [_part(part, f"{path}.content[{i}]") for i, part in enumerate(content)]


def _part(part: Any, path: str) -> str:
    if isinstance(part, str):
        return _well_formed(part, path)
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in _MEDIA_PARTS:
        raise NotSupported(f"content of type {kind} is not supported by this model", param=path)
    if kind not in _TEXT_PARTS:
        raise InvalidRequest("a content part must be of type text", param=f"{path}.type")
    text = part.get("text", part.get("refusal"))
    if not isinstance(text, str):
        raise InvalidRequest("text must be a string", param=f"{path}.text")
    return _well_formed(text, f"{path}.text")


def _well_formed(text: str, path: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest(
            "the text holds half of a surrogate pair, which is no character", param=path
        ) from None
    return text


def _tool_calls(calls: Any, path: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise InvalidRequest("tool_calls must be a list", param=path)
    return [_tool_call(call, f"{path}[{i}]") for i, call in enumerate(calls)]


def _tool_call(call: Any, path: str) -> dict[str, Any]:
    """A call whose arguments are an object, as templates expect, not JSON text."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequest("a tool call needs a function with a name", param=path)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except ValueError as err:
            raise InvalidRequest(
                f"arguments are not valid JSON: {err}", param=f"{path}.function.arguments"
            ) from None
    return {**call, "function": {**function, "arguments": arguments or {}}}
