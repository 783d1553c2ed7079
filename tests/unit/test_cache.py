"""The page allocator and the radix cache, against the invariants drawn in `pages.py`."""

import random

import pytest

from headwater.worker.cache.pages import PageAllocator
from headwater.worker.cache.radix import Node, RadixCache


def build(num_pages: int, page_size: int = 2) -> tuple[PageAllocator, RadixCache]:
    """An empty pool and cache."""
    allocator = PageAllocator(num_pages)
    return allocator, RadixCache(allocator, page_size)


def store(allocator: PageAllocator, cache: RadixCache, ids: list[int]) -> Node:
    """Insert `ids` with freshly allocated pages."""
    pages = allocator.allocate(len(ids) // 2)
    assert pages is not None
    return cache.insert(ids, pages)[1]


def test_allocation_is_all_or_nothing() -> None:
    """A request that does not fit takes no page."""
    allocator = PageAllocator(3)
    assert allocator.allocate(4) is None
    assert allocator.num_free == 3
    assert sorted(allocator.allocate(3) or []) == [0, 1, 2]


def test_double_free_is_noticed() -> None:
    """Freeing a free page is our own bug, and says so."""
    allocator = PageAllocator(1)
    with pytest.raises(AssertionError, match="freed twice"):
        allocator.free([0])


def test_match_counts_whole_pages() -> None:
    """Only full pages that agree token for token are a hit."""
    allocator, cache = build(8)
    store(allocator, cache, [1, 2, 3, 4, 5])
    assert len(cache.match([1, 2, 3, 4, 5, 6])[0]) == 2
    assert len(cache.match([1, 2, 3, 9])[0]) == 1
    assert cache.match([2, 1])[0] == cache.match([1])[0] == []


def test_duplicate_pages_go_back() -> None:
    """Two requests that computed the same page share one, and the other is freed."""
    allocator, cache = build(4)
    store(allocator, cache, [1, 2])
    store(allocator, cache, [1, 2])
    assert (cache.num_pages, allocator.num_free) == (1, 3)
    cache.check_integrity()


def test_eviction_is_least_recently_used_and_spares_locked_paths() -> None:
    """A locked path stays; of the others the one unused for longest goes first."""
    allocator, cache = build(6)
    store(allocator, cache, [1, 2])
    store(allocator, cache, [3, 4])
    locked = store(allocator, cache, [5, 6, 7, 8])
    cache.lock(locked)
    cache.match([1, 2])
    assert cache.evict(1) == 1
    assert (len(cache.match([1, 2])[0]), len(cache.match([3, 4])[0])) == (1, 0)
    assert cache.flush() == 1
    assert len(cache.match([5, 6, 7, 8])[0]) == 2
    cache.unlock(locked)
    assert cache.flush() == 2
    assert allocator.num_free == 6


def test_lost_page_is_noticed() -> None:
    """The integrity check fails when a page has no owner."""
    allocator, cache = build(2)
    allocator.allocate(1)
    with pytest.raises(AssertionError, match="lost"):
        cache.check_integrity()


@pytest.mark.parametrize("seed", range(20))
def test_random_events_keep_every_page_owned(seed: int) -> None:
    """Random match, insert, lock, unlock and evict never lose, share or mix up a page."""
    rng = random.Random(seed)
    allocator, cache = build(24)
    content: dict[int, tuple[int, ...]] = {}  # what a real pool would hold in each page
    locked: list[Node] = []
    for _ in range(300):
        ids = [rng.randint(0, 1) for _ in range(rng.randint(0, 11))]
        matched, node = cache.match(ids)
        assert [content[p] for p in matched] == [
            tuple(ids[: 2 * i + 2]) for i in range(len(matched))
        ]
        cache.lock(node)
        num_new = len(ids) // 2 - len(matched)
        if allocator.num_free < num_new:
            cache.evict(num_new - allocator.num_free)
        new = allocator.allocate(num_new)
        if new is not None:
            for i, page in enumerate(new, len(matched)):
                content[page] = tuple(ids[: 2 * i + 2])
            cached, last = cache.insert(ids, matched + new)
            assert len(cached) == len(ids) // 2
            cache.lock(last)
            locked.append(last)
        cache.unlock(node)
        while locked and rng.random() < 0.5:
            cache.unlock(locked.pop(rng.randrange(len(locked))))
        cache.check_integrity()
    for node in locked:
        cache.unlock(node)
    cache.flush()
    assert allocator.num_free == 24
