"""A model's files to a model that can run steps, with a KV pool that fits the memory left."""

import torch

from headwater.config import Config
from headwater.errors import ConfigError
from headwater.kernels import KVPool, select_ops
from headwater.models.decoder import Decoder
from headwater.models.loader import load_model
from headwater.sources.info import ModelInfo
from headwater.sources.resolve import ModelFiles
from headwater.worker.runner.memory import available_bytes, num_pages_for_pool

__all__ = ["load_decoder", "make_pool"]


def load_decoder(
    config: Config, files: ModelFiles, info: ModelInfo, context_length: int
) -> Decoder:
    """Load a model as the configuration says: threads, device and precision.

    Args:
        config: All settings.
        files: The model.
        info: Its config.
        context_length: Positions that can occur.

    Raises:
        ConfigError: The device is not there.
        ModelLoadError: The model cannot be loaded.
    """
    # Torch's own choice is a thread for each core that it may use, or OMP_NUM_THREADS.
    if config.model.num_threads is not None:
        torch.set_num_threads(config.model.num_threads)
    device = config.model.device
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch sees no such device", param="device")
    automatic = "float32" if device == "cpu" else "bfloat16"
    name = automatic if config.model.dtype == "auto" else config.model.dtype
    dtype: torch.dtype = getattr(torch, name)
    return load_model(
        files,
        info,
        dtype=dtype,
        device=device,
        ops=select_ops(device),
        context_length=context_length,
    )


def make_pool(config: Config, model: Decoder, context_length: int) -> KVPool:
    """Make the KV pool of a model that has been loaded.

    Raises:
        ConfigError: There is no memory for it.
    """
    shape, page_size = model.config, config.scheduler.page_size
    numbers_per_token = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim
    bytes_per_token = numbers_per_token * model.dtype.itemsize
    is_cpu = config.model.device == "cpu"
    num_pages = num_pages_for_pool(
        bytes_per_token=bytes_per_token,
        page_size=page_size,
        context_length=context_length,
        max_running_requests=config.scheduler.max_running_requests,
        max_total_tokens=config.scheduler.max_total_tokens,
        free_bytes=available_bytes() if is_cpu else torch.cuda.mem_get_info()[0],
    )
    try:
        return KVPool(
            num_layers=shape.num_layers,
            num_pages=num_pages,
            page_size=page_size,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            dtype=model.dtype,
            device=model.device,
        )
    except (MemoryError, ValueError, RuntimeError):  # numpy's ways to say so, and torch's
        num_tokens = num_pages * page_size
        raise ConfigError(
            f"no memory for a KV cache of {num_tokens} tokens, which takes "
            f"{num_tokens * bytes_per_token} bytes; lower --max-total-tokens",
            param="max_total_tokens",
        ) from None
