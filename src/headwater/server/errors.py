"""Errors as responses: one shape, `{"error": {message, type, param, code}}`, on every route."""

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from headwater.errors import HeadwaterError, InternalError

__all__ = ["add_error_handlers", "error_object", "error_response"]

log = logging.getLogger("headwater.server")

_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
_HEADERS = {
    "overloaded": {"Retry-After": "1"},  # seconds
    "invalid_api_key": {"WWW-Authenticate": "Bearer"},
}


def error_object(error: HeadwaterError) -> dict[str, Any]:
    """The JSON object of an error."""
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
        }
    }


def _json(
    status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        orjson.dumps(body),
        status_code=status,
        media_type="application/json",
        headers=dict(headers or {}),
    )


def error_response(error: HeadwaterError) -> Response:
    """The HTTP response of an error."""
    headers = _HEADERS.get(error.code)
    return _json(error.status, error_object(error), headers)


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error of the app in that shape."""

    async def on_headwater(request: Request, error: Exception) -> Response:
        assert isinstance(error, HeadwaterError)
        return error_response(error)

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"{request.method} {request.url.path}: {error.detail}"
        code = _HTTP_CODES.get(error.status_code, "invalid_value")
        body = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        return _json(error.status_code, {"error": body}, error.headers)

    async def on_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"][1:]) or None
        body = {"message": first["msg"], "type": "invalid_request_error", "param": path}
        return _json(400, {"error": {**body, "code": "invalid_value"}})

    async def on_bug(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return error_response(InternalError("headwater failed on this request; see its log"))

    app.add_exception_handler(HeadwaterError, on_headwater)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(Exception, on_bug)
