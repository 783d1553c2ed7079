"""Input items of `/v1/responses` as chat messages."""

from collections.abc import Mapping
from typing import Any

from headwater.errors import InvalidRequest, NotSupported

__all__ = ["to_messages"]


def to_messages(items: Any, instructions: str | None) -> list[dict[str, Any]]:
    """The conversation that an input stands for.

    Args:
        items: A text, or a list of items.
        instructions: A system message to put first.

    Raises:
        InvalidRequest: An item is wrong; `param` is its path, `input[2].role`.
    """
    messages: list[dict[str, Any]] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if isinstance(items, str):
        return [*messages, {"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise InvalidRequest("input must be a text or a list of at least one item", param="input")
    for i, item in enumerate(items):
        _append(messages, item, f"input[{i}]")
    return messages


def _append(messages: list[dict[str, Any]], item: Any, path: str) -> None:
    if not isinstance(item, Mapping):
        raise InvalidRequest("an item must be an object", param=path)
    kind = item.get("type", "message")
    if kind == "message":
        messages.append({"role": item.get("role"), "content": item.get("content")})
    elif kind == "function_call":
        _append_call(messages, item, path)
    elif kind == "function_call_output":
        output = item.get("output")
        call_id = _string(item, "call_id", path)
        messages.append({"role": "tool", "tool_call_id": call_id, "content": output})
    else:
        raise NotSupported(f"items of type {kind!r} are not supported", param=f"{path}.type")


def _append_call(messages: list[dict[str, Any]], item: Mapping[str, Any], path: str) -> None:
    """A call belongs to the assistant's message before it; several may follow each other."""
    call = {
        "id": _string(item, "call_id", path),
        "type": "function",
        "function": {
            "name": _string(item, "name", path),
            "arguments": _string(item, "arguments", path),
        },
    }
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call)


def _string(item: Mapping[str, Any], name: str, path: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a string", param=f"{path}.{name}")
    return value
