"""The ASGI application: endpoints over one client of the runtime."""

from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.responses import Response

from headwater.frontend.client import Client
from headwater.server.auth import ApiKeys, RequireKey
from headwater.server.disconnect import ClientGone
from headwater.server.errors import add_error_handlers
from headwater.server.routes import load_routers
from headwater.version import __version__

__all__ = ["build_app"]

_CLIENT_CLOSED_REQUEST = 499  # nginx's number; nobody reads it


def build_app(client: Client, api_keys: Sequence[str] = ()) -> FastAPI:
    """Build the application.

    Args:
        client: The running engine.
        api_keys: Keys, one of which every request must carry; none lets everybody in.
    """
    app = FastAPI(title="headwater", version=__version__)
    app.state.client = client
    for router in load_routers():
        app.include_router(router)
    add_error_handlers(app)

    async def on_gone(request: Request, error: Exception) -> Response:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)

    app.add_exception_handler(ClientGone, on_gone)
    if api_keys:
        app.add_middleware(RequireKey, keys=ApiKeys(api_keys))
    return app
