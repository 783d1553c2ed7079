"""The one error tree of headwater; it knows HTTP numbers as class data, and no other module.

    HeadwaterError
    ├── InvalidRequest            400  the client's input is wrong; `param` names the field
    │   ├── ContextLengthExceeded 400  prompt (+ answer) does not fit; both numbers in the text
    │   └── NotSupported          400  understood, but this server or model cannot do it
    ├── Unauthorized              401  no API key, or a wrong one
    ├── NotFound                  404  unknown model, request or route
    ├── Conflict                  409  a live request already has this id
    ├── PayloadTooLarge           413
    ├── UnsupportedMediaType      415
    ├── Overloaded                503  queue full, or the server is draining
    ├── EngineDead                503  a process of the engine ended; nothing can be answered
    ├── InternalError             500  headwater's own fault, this request only
    ├── ConfigError               (start-up) a flag or environment value is wrong
    └── ModelLoadError            (start-up) the model cannot be found, fetched or loaded

Errors cross process borders as `messages.text.ErrorInfo`; nobody matches on message text.
"""

from typing import ClassVar

__all__ = [
    "ConfigError",
    "Conflict",
    "ContextLengthExceeded",
    "EngineDead",
    "HeadwaterError",
    "InternalError",
    "InvalidRequest",
    "ModelLoadError",
    "ModelNotFound",
    "NotFound",
    "NotSupported",
    "Overloaded",
    "PayloadTooLarge",
    "Unauthorized",
    "UnsupportedMediaType",
    "error_from_code",
]


class HeadwaterError(Exception):
    """Base of every error headwater raises on purpose.

    Attributes:
        message: One sentence for the user that says what is wrong and what would be right.
        param: The field at fault as a path (`sampling_params.top_p`, `messages[0].role`), or None.
        code: Stable machine-readable word.
        type: OpenAI's error type.
        status: HTTP status that a server answers with.
    """

    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(HeadwaterError):
    """The request itself is wrong; trying it again unchanged cannot work."""

    code = "invalid_value"
    type = "invalid_request_error"
    status = 400


class ContextLengthExceeded(InvalidRequest):
    """Prompt, or prompt plus requested answer, is longer than the model's context."""

    code = "context_length_exceeded"


class NotSupported(InvalidRequest):
    """A valid request for something this server or model cannot do."""

    code = "not_supported"


class Unauthorized(HeadwaterError):
    """The request carries no API key, or a wrong one."""

    code = "invalid_api_key"
    type = "invalid_request_error"
    status = 401


class NotFound(HeadwaterError):
    """The named model, request or route does not exist."""

    code = "not_found"
    type = "invalid_request_error"
    status = 404


class ModelNotFound(NotFound):
    """The request names a model that is not served here."""

    code = "model_not_found"


class Conflict(HeadwaterError):
    """A live request already uses this id."""

    code = "conflict"
    type = "invalid_request_error"
    status = 409


class PayloadTooLarge(HeadwaterError):
    """The request body is larger than the server reads."""

    code = "payload_too_large"
    type = "invalid_request_error"
    status = 413


class UnsupportedMediaType(HeadwaterError):
    """The request body is not JSON."""

    code = "unsupported_media_type"
    type = "invalid_request_error"
    status = 415


class Overloaded(HeadwaterError):
    """No room for another request now; trying again later can work."""

    code = "overloaded"
    type = "server_error"
    status = 503


class EngineDead(HeadwaterError):
    """A process of the engine has ended; this server will answer nothing more."""

    code = "engine_dead"
    type = "server_error"
    status = 503


class InternalError(HeadwaterError):
    """Headwater failed on this one request."""


class ConfigError(HeadwaterError):
    """A flag, environment variable or configuration value is wrong."""

    code = "config_error"


class ModelLoadError(HeadwaterError):
    """The model cannot be found, fetched, read or loaded; the text says what was tried."""

    code = "model_load_error"


_BY_CODE: dict[str, type[HeadwaterError]] = {
    cls.code: cls
    for cls in (
        InvalidRequest,
        ContextLengthExceeded,
        NotSupported,
        Unauthorized,
        NotFound,
        ModelNotFound,
        Conflict,
        PayloadTooLarge,
        UnsupportedMediaType,
        Overloaded,
        EngineDead,
        InternalError,
        ConfigError,
        ModelLoadError,
    )
}


def error_from_code(code: str, message: str, param: str | None = None) -> HeadwaterError:
    """Rebuild an error that crossed a process border; an unknown code is an `InternalError`."""
    return _BY_CODE.get(code, InternalError)(message, param=param)
