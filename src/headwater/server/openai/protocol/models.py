"""`/v1/models`."""

from typing import Literal

from headwater.server.openai.protocol.base import ResponseModel

__all__ = ["Model", "ModelList"]


class Model(ResponseModel):
    """A name of the model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: None
    max_model_len: int


class ModelList(ResponseModel):
    """All names."""

    object: Literal["list"]
    data: list[Model]
