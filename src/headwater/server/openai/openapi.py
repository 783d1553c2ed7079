"""What /docs shows of an endpoint, made from its pydantic models."""

from typing import Any

from pydantic import BaseModel

__all__ = ["describe"]


def describe(
    body: type[BaseModel] | None,
    answer: type[BaseModel],
    *,
    chunk: type[BaseModel] | None = None,
) -> dict[str, Any]:
    """Keyword arguments of a route whose handler reads its body itself.

    Args:
        body: The request; None when there is none.
        answer: The answer of status 200.
        chunk: The events of a stream.
    """
    content = {}
    if chunk is not None:
        content["text/event-stream"] = {"schema": _schema(chunk)}
    found: dict[str, Any] = {
        "response_model": None,
        "responses": {200: {"model": answer, "description": "The answer", "content": content}},
    }
    if body is not None:
        schema = {"application/json": {"schema": _schema(body)}}
        found["openapi_extra"] = {"requestBody": {"required": True, "content": schema}}
    return found


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """A model's JSON schema with the models it uses put in place: OpenAPI has no `$defs`."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def inline(value: Any) -> Any:
        if isinstance(value, list):
            return [inline(item) for item in value]
        if not isinstance(value, dict):
            return value
        name = value.get("$ref", "").removeprefix("#/$defs/")
        if name in definitions:
            return inline(definitions[name])
        return {key: inline(item) for key, item in value.items()}

    inlined: dict[str, Any] = inline(schema)
    return inlined
