"""How many pages a pool gets."""

from typing import Any

import pytest

from headwater.errors import ConfigError
from headwater.worker.runner.memory import available_bytes, num_pages_for_pool

GIB = 1 << 30


def pages(**fields: Any) -> int:
    """With 1 KiB for a token and 16 tokens in a page."""
    values: dict[str, Any] = {
        "bytes_per_token": 1024,
        "page_size": 16,
        "context_length": 1000,
        "max_running_requests": 10,
        "max_total_tokens": None,
        "free_bytes": 8 * GIB,
        **fields,
    }
    return num_pages_for_pool(**values)


def test_no_more_than_all_requests_can_use() -> None:
    """Ten requests of 1000 tokens need 63 pages each."""
    assert pages() == 630


def test_a_quarter_of_the_free_memory() -> None:
    """When all requests could use more than that."""
    found = pages(context_length=1 << 10, max_running_requests=10_000, free_bytes=GIB)
    assert found == GIB // 4 // (1024 * 16)


def test_at_most_four_gib() -> None:
    """However much is free: a laptop stays usable."""
    found = pages(context_length=1 << 20, max_running_requests=100, free_bytes=1 << 50)
    assert found == 4 * GIB // (1024 * 16)


@pytest.mark.parametrize(
    ("free_bytes", "expected"),
    [(100 * GIB, 16 * GIB), (40 * GIB, 16 * GIB), (20 * GIB, 10 * GIB)],
)
def test_one_context_may_take_half_of_the_memory(free_bytes: int, expected: int) -> None:
    """A context of 16 GiB fits whole as long as it is no more than half of what is free."""
    assert pages(context_length=1 << 24, free_bytes=free_bytes) == expected // (1024 * 16)


def test_what_the_user_asks_for() -> None:
    """In tokens, rounded down to whole pages, whatever is free."""
    assert pages(max_total_tokens=100, free_bytes=0) == 6
    with pytest.raises(ConfigError, match="less than a page of 16") as caught:
        pages(max_total_tokens=15)
    assert caught.value.param == "max_total_tokens"


def test_not_even_one_page() -> None:
    """The error says what would help."""
    with pytest.raises(ConfigError, match="--page-size or serve a smaller model"):
        pages(free_bytes=1024)


def test_free_memory_is_a_number_of_bytes() -> None:
    """At least a few MiB, at most what a machine can have."""
    assert 1 << 22 < available_bytes() < 1 << 50
