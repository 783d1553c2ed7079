"""Request bodies: JSON objects of bounded size, and checked access to their fields."""

import math
import re
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import Request
from starlette.requests import ClientDisconnect

from headwater.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from headwater.server.disconnect import ClientGone

__all__ = ["Fields", "check_ids", "check_integer", "check_rid", "read_fields"]

# What is nested deeper cannot be walked, or written in an answer, without a limit of Python's.
_MAX_DEPTH = 64
_RID = re.compile(r"[!-~]{1,256}")


async def read_fields(request: Request, *, max_bytes: int) -> "Fields":
    """Read a JSON object.

    Raises:
        UnsupportedMediaType: The content type is another than JSON.
        PayloadTooLarge: The body has more than `max_bytes`; it is not read to its end.
        InvalidRequest: It is not a JSON object, or nested too deep.
        ClientGone: The client left before the body's end.
    """
    kind = request.headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaType(f"the body must be application/json, not {kind}")
    data = await _read(request, max_bytes)
    try:
        value = orjson.loads(data or b"null")
    except orjson.JSONDecodeError as err:
        raise InvalidRequest(f"the body is not valid JSON: {err}") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    if data.count(b"{") + data.count(b"[") > _MAX_DEPTH:
        _check_depth(value)
    return Fields(value)


async def _read(request: Request, max_bytes: int) -> bytes:
    data = bytearray()
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > max_bytes:
                raise PayloadTooLarge(f"the body is larger than {max_bytes} bytes")
    except ClientDisconnect:
        raise ClientGone from None
    return bytes(data)


def _check_depth(value: dict[str, Any]) -> None:
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise InvalidRequest(f"the body is nested deeper than {_MAX_DEPTH} levels")


class Fields:
    """A JSON object whose fields are read with their types checked. null means absent.

    Args:
        values: The object.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def get(self, name: str) -> Any:
        """The field as it is; None when absent."""
        return self.values.get(name)

    def text(self, name: str, default: str | None = None) -> str | None:
        """A string.

        Raises:
            InvalidRequest: It is something else.
        """
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InvalidRequest(f"{name} must be a string, got {_kind(value)}", param=name)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean.

        Raises:
            InvalidRequest: It is something else.
        """
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidRequest(f"{name} must be true or false, got {_kind(value)}", param=name)
        return value

    def integer(
        self, name: str, default: int | None = None, *, low: int = 0, high: float = math.inf
    ) -> int | None:
        """An integer in [low, high].

        Raises:
            InvalidRequest: It is something else, or out of range.
        """
        value = self.values.get(name)
        return default if value is None else check_integer(value, name, low=low, high=high)


def check_integer(value: Any, param: str, *, low: int = 0, high: float = math.inf) -> int:
    """An integer in [low, high], or an error that names `param`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        bound = f">= {low}" if high == math.inf else f"in [{low}, {high}]"
        shown = repr(value) if isinstance(value, int | float) else _kind(value)
        raise InvalidRequest(f"{param} must be an integer {bound}, got {shown}", param=param)
    return value


def check_ids(value: Any, param: str) -> list[int]:
    """A list of integers, or an error that names `param`; the vocabulary is checked later."""
    if not isinstance(value, list):
        raise InvalidRequest(f"{param} must be a list of token ids", param=param)
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int):
            raise InvalidRequest(f"{param} must hold integers, got {_kind(item)}", param=param)
    return value


def check_rid(value: Any, param: str) -> str:
    """A request's name, or an error that names `param`. It goes into a header, and into logs."""
    if not isinstance(value, str) or _RID.fullmatch(value) is None:
        raise InvalidRequest(
            f"{param} must be a string of 1 to 256 visible ASCII characters", param=param
        )
    return value


def _kind(value: Any) -> str:
    """A JSON value's type, for a message."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "null" if value is None else "a number")
