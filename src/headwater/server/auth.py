"""API keys: who may talk to the server."""

import hmac
from collections.abc import Iterable
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.config import ServerConfig
from headwater.errors import ConfigError, Unauthorized
from headwater.server.errors import error_response

__all__ = ["ApiKeys", "RequireKey", "read_api_keys"]

# Load balancers ask for these, and they tell nothing of the model.
_OPEN_PATHS = frozenset({"/health"})


def read_api_keys(config: ServerConfig) -> list[str]:
    """The keys of flags and file.

    Raises:
        ConfigError: The file cannot be read or holds no key, or a key is not ASCII.
    """
    keys = list(config.api_key)
    if config.api_key_file is not None:
        try:
            lines = Path(config.api_key_file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as err:
            raise ConfigError(f"cannot read --api-key-file: {err}", param="api_key_file") from None
        found = [line.strip() for line in lines if line.strip()]
        if not found:
            raise ConfigError(
                f"--api-key-file {config.api_key_file} holds no key", param="api_key_file"
            )
        keys += found
    if not all(key.isascii() for key in keys):
        raise ConfigError("API keys must be ASCII: they travel in a header", param="api_key")
    return keys


class ApiKeys:
    """Keys that open the server.

    Args:
        keys: At least one.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = [key.encode() for key in keys]

    def accept(self, authorization: bytes) -> bool:
        """Whether a header `Bearer <key>` holds one of the keys.

        All are compared, each in time that tells nothing of where a wrong key differs.
        """
        kind, _, given = authorization.partition(b" ")
        if kind.lower() != b"bearer":
            return False
        return sum(hmac.compare_digest(given.strip(), key) for key in self._keys) > 0


class RequireKey:
    """ASGI middleware that answers 401 without a key.

    Args:
        app: What is protected.
        keys: What opens it.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        # Anthropic's clients and gateways send the key by itself.
        own = headers.get(b"x-api-key")
        given = headers.get(b"authorization", b"Bearer " + own if own is not None else b"")
        if self._keys.accept(given):
            await self._app(scope, receive, send)
            return
        text = "a valid API key is needed: send it as `Authorization: Bearer KEY`"
        await error_response(Unauthorized(text))(scope, receive, send)
