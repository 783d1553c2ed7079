"""`/model_info` and `/server_info`."""

import time

import msgspec
from fastapi import APIRouter
from fastapi.responses import Response

from headwater.frontend.native import WEIGHT_VERSION
from headwater.server.answer import json_response
from headwater.server.context import ClientDep
from headwater.version import __version__

__all__ = ["router"]

router = APIRouter(tags=["control"])


@router.get("/model_info")
@router.get("/get_model_info", include_in_schema=False)
async def model_info(client: ClientDep) -> Response:
    """The model that is served."""
    card = client.card
    return json_response(
        {
            "model_path": client.model_path,
            "served_model_name": client.model_name,
            "tokenizer_path": client.config.model.tokenizer or client.model_path,
            "is_generation": True,
            "preferred_sampling_params": client.sampling_defaults or None,
            "weight_version": WEIGHT_VERSION,
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "has_chat_template": client.chat.has_format,
            "architectures": [card.architecture],
            **msgspec.structs.asdict(card),
        }
    )


@router.get("/server_info")
@router.get("/get_server_info", include_in_schema=False)
async def server_info(client: ClientDep) -> Response:
    """Every setting, the version, and the scheduler's counts."""
    settings = {k: v for group in client.config.to_dict().values() for k, v in group.items()}
    return json_response(
        {
            **settings,
            "version": __version__,
            "uptime_s": time.time() - client.started_at,
            "pids": client.pids(),
            "num_live": client.num_live,
            "state": await client.state(),
        }
    )
