"""Reading a request model: every error names the field by its path; null means absent."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headwater.errors import InvalidRequest

__all__ = ["RequestModel", "ResponseModel", "optional"]


def optional(description: str, **more: Any) -> Any:
    """A field that may be absent."""
    return Field(default=None, description=description, **more)


class RequestModel(BaseModel):
    """A request body. Unknown fields are let through, as OpenAI's servers and clients expect."""

    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Check a JSON object.

        Raises:
            InvalidRequest: A field is missing or of the wrong type; `param` is its path.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as err:
            path, text = _first_error(values, err)
            raise InvalidRequest(f"{path}: {text}", param=path) from None


class ResponseModel(BaseModel):
    """A response body, as /docs shows it. Answers are written without it, for speed."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


def _first_error(values: Mapping[str, Any], err: ValidationError) -> tuple[str, str]:
    """Path and text of the first wrong field.

    A union has an error for each member; the one that got furthest says most.
    """
    errors = err.errors(include_url=False, include_input=False)
    field = errors[0]["loc"][0]
    found = [
        (error_path(values, e["loc"], is_missing=e["type"] == "missing"), e["msg"])
        for e in errors
        if e["loc"][0] == field
    ]
    path = max((path for path, _ in found), key=len)
    return path, "; or: ".join(text for where, text in found if where == path)


def error_path(value: Any, loc: Sequence[str | int], *, is_missing: bool) -> str:
    """The path of a wrong field, `messages[2].role`.

    pydantic puts the names of a union's members among those of fields; the value itself tells
    which are which.
    """
    path = ""
    for place, key in enumerate(loc):
        if isinstance(value, list) and isinstance(key, int):
            path += f"[{key}]"
            value = value[key] if key < len(value) else None
        elif isinstance(value, dict) and (key in value or (is_missing and place == len(loc) - 1)):
            path += f".{key}" if path else str(key)
            value = value.get(key)
    return path
