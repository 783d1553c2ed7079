"""How many KV pages to keep; it knows bytes, not tensors."""

import os

from headwater.errors import ConfigError

__all__ = ["available_bytes", "num_pages_for_pool"]

# Part of the free memory that the pool takes unless told otherwise, and a bound that keeps a
# laptop usable: 4 GiB hold some 90,000 tokens of a 135M model in float32.
_SHARE = 0.25
_MOST_BYTES = 4 << 30
# What it may take so that one request can use the model's whole context.
_SHARE_FOR_CONTEXT = 0.5


def available_bytes() -> int:
    """Memory that can be taken without swapping, by Linux's estimate; half of all elsewhere."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def num_pages_for_pool(
    *,
    bytes_per_token: int,
    page_size: int,
    context_length: int,
    max_running_requests: int,
    max_total_tokens: int | None,
    free_bytes: int,
) -> int:
    """Pages of the pool.

    Without `max_total_tokens`: as many as all requests could use, as far as a quarter of the free
    memory, and no more than 4 GiB, goes. When that is less than one context, as much of one context
    as half of the free memory holds; the caller serves no longer context than the pool.

    Raises:
        ConfigError: Not even one page fits.
    """
    if max_total_tokens is not None:
        if max_total_tokens < page_size:
            raise ConfigError(
                f"--max-total-tokens {max_total_tokens} is less than a page of {page_size} tokens",
                param="max_total_tokens",
            )
        return max_total_tokens // page_size
    bytes_per_page = bytes_per_token * page_size
    one_context = -(-context_length // page_size)
    fitting = max(
        min(int(free_bytes * _SHARE), _MOST_BYTES) // bytes_per_page,
        min(int(free_bytes * _SHARE_FOR_CONTEXT) // bytes_per_page, one_context),
    )
    if fitting < 1:
        raise ConfigError(
            f"no memory for the KV cache: a page of {page_size} tokens takes {bytes_per_page} "
            f"bytes and {free_bytes} are free; lower --page-size or serve a smaller model",
            param="max_total_tokens",
        )
    return min(fitting, max_running_requests * one_context)
