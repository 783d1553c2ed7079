"""The endpoints: one module each, with a `router`. To add one, write the file and add its line."""

from importlib import import_module

from fastapi import APIRouter

__all__ = ["ENDPOINTS", "load_routers"]

ENDPOINTS = (
    "headwater.server.control.cache",
    "headwater.server.control.health",
    "headwater.server.control.info",
    "headwater.server.native.generate",
    "headwater.server.native.tokenize",
    "headwater.server.openai.chat",
    "headwater.server.openai.completions",
    "headwater.server.openai.models",
    "headwater.server.openai.responses",
)


def load_routers() -> list[APIRouter]:
    """The routers of all endpoints, in the table's order."""
    return [import_module(name).router for name in ENDPOINTS]
