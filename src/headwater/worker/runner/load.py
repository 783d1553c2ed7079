"""A model's files to a model that can run steps, with a KV pool that fits the memory left."""

import logging
from typing import Any

import torch

from headwater.config import Config
from headwater.errors import ConfigError
from headwater.kernels import select_ops
from headwater.kernels.native import Library, Precision, load_library
from headwater.models.loader import load_model
from headwater.models.model import Pool, StepModel
from headwater.models.native import WeightPrecision, load_native_model
from headwater.sources.info import ModelInfo
from headwater.sources.resolve import ModelFiles
from headwater.worker.runner.memory import available_bytes, num_pages_for_pool

__all__ = ["load_step_model", "make_pool"]

log = logging.getLogger("headwater.worker")

_PRECISIONS = {
    "float32": Precision.F32,
    "float16": Precision.F16,
    "bfloat16": Precision.BF16,
    "q8": Precision.Q8,
    "q4": Precision.Q4,
}


def load_step_model(
    config: Config, files: ModelFiles, info: ModelInfo, context_length: int
) -> StepModel[Any]:
    """Load a model as the configuration says: operations, threads, device and precision.

    Args:
        config: All settings.
        files: The model.
        info: Its config.
        context_length: Positions that can occur.

    Raises:
        ConfigError: The device or the operations are not there.
        ModelLoadError: The model cannot be loaded.
    """
    # Torch's own choice is a thread for each core that it may use, or OMP_NUM_THREADS.
    if config.model.num_threads is not None:
        torch.set_num_threads(config.model.num_threads)
    library = _library(config)
    if library is not None:
        log.info("native operations: %s, %d threads", library.isa, torch.get_num_threads())
        return load_native_model(
            files,
            info,
            library=library,
            precision=_precision(config),
            num_threads=torch.get_num_threads(),
            context_length=context_length,
        )
    return _load_portable(config, files, info, context_length)


def _library(config: Config) -> Library | None:
    """The native operations, if they are to be used.

    Raises:
        ConfigError: They must be, and are not there.
    """
    kernels, device = config.model.kernels, config.model.device
    if kernels == "portable" or (kernels == "auto" and device != "cpu"):
        return None
    if device != "cpu":
        raise ConfigError("--kernels native runs on the CPU only", param="kernels")
    try:
        library = load_library()
    except OSError as err:
        if kernels == "native":
            raise ConfigError(f"--kernels native: {err}", param="kernels") from None
        log.warning("the native operations cannot be used: %s", err)
        return None
    if library is None:
        text = "headwater was installed without its native operations (there was no C++ compiler)"
        if kernels == "native":
            raise ConfigError(f"--kernels native: {text}", param="kernels")
        log.warning("%s; the portable ones are slower", text)
    return library


def _precision(config: Config) -> WeightPrecision:
    """How the native operations keep the weights."""
    dtype, quantization = config.model.dtype, config.model.quantization
    if quantization in ("q4", "q8"):
        return WeightPrecision(_PRECISIONS[quantization], Precision.Q8)
    if dtype != "auto" or quantization == "none":
        plain = _PRECISIONS["float32" if dtype == "auto" else dtype]
        return WeightPrecision(plain, plain)
    return WeightPrecision()


def _load_portable(
    config: Config, files: ModelFiles, info: ModelInfo, context_length: int
) -> StepModel[Any]:
    device, quantization = config.model.device, config.model.quantization
    if quantization in ("q4", "q8"):
        raise ConfigError(
            f"--quantization {quantization} needs the native operations", param="quantization"
        )
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


def make_pool(config: Config, model: StepModel[Any], context_length: int) -> Pool:
    """Make the KV pool of a model that has been loaded.

    Raises:
        ConfigError: There is no memory for it.
    """
    shape, page_size = model.config, config.scheduler.page_size
    numbers_per_token = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim
    bytes_per_token = numbers_per_token * model.cache_dtype.itemsize
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
        pool: Pool = model.make_pool(num_pages, page_size)
        return pool
    except (MemoryError, ValueError, RuntimeError):  # numpy's ways to say so, and torch's
        num_tokens = num_pages * page_size
        raise ConfigError(
            f"no memory for a KV cache of {num_tokens} tokens, which takes "
            f"{num_tokens * bytes_per_token} bytes; lower --max-total-tokens",
            param="max_total_tokens",
        ) from None
