"""The page allocator and the radix cache, against the invariants drawn in `pages.py`."""

import random

import pytest

from headwater.worker.cache.pages import PageAllocator, num_pages_for
from headwater.worker.cache.radix import Node, RadixCache

SIZE = 2


def build(num_pages: int) -> tuple[PageAllocator, RadixCache]:
    """An empty pool and cache."""
    allocator = PageAllocator(num_pages)
    return allocator, RadixCache(allocator, SIZE)


def store(allocator: PageAllocator, cache: RadixCache, ids: list[int], salt: str = "") -> Node:
    """Insert `ids` with freshly allocated pages; the last node is locked once."""
    pages = allocator.allocate(len(ids) // SIZE)
    assert pages is not None
    return cache.extend(cache.root, ids, len(ids), pages, salt)


def keep(allocator: PageAllocator, cache: RadixCache, ids: list[int], salt: str = "") -> None:
    """Insert `ids` and let go of them."""
    cache.unlock(store(allocator, cache, ids, salt))


def depth(cache: RadixCache, ids: list[int], salt: str = "") -> int:
    """Pages of the longest cached prefix."""
    return cache.find(ids, len(ids) // SIZE, salt).depth


def test_pages_for_tokens_round_up() -> None:
    """A partial page is a page."""
    assert [num_pages_for(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


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


def test_find_counts_whole_pages() -> None:
    """Only full pages that agree token for token are a hit, and no more than wanted."""
    allocator, cache = build(8)
    keep(allocator, cache, [1, 2, 3, 4, 5])
    assert depth(cache, [1, 2, 3, 4, 5, 6]) == 2
    assert depth(cache, [1, 2, 3, 9]) == 1
    assert depth(cache, [2, 1]) == depth(cache, [1]) == 0
    assert cache.find([1, 2, 3, 4], 1).depth == 1


def test_find_goes_on_from_an_earlier_node() -> None:
    """A search may begin where the last one ended; after an eviction it begins anew."""
    allocator, cache = build(8)
    keep(allocator, cache, [1, 2])
    ids = [1, 2, 3, 4]
    early = cache.find(ids, 2)
    keep(allocator, cache, ids)
    late = cache.find(ids, 2, start=early)
    assert late.parent is early
    assert cache.evict(1) == 1
    assert cache.find(ids, 2, start=late) is early


def test_salts_are_separate_trees() -> None:
    """The same ids under another salt are other pages."""
    allocator, cache = build(8)
    keep(allocator, cache, [1, 2, 3, 4], "a")
    assert [depth(cache, [1, 2, 3, 4], salt) for salt in ("a", "b", "")] == [2, 0, 0]
    keep(allocator, cache, [1, 2])
    assert [depth(cache, [1, 2, 3, 4], salt) for salt in ("a", "b", "")] == [2, 0, 1]
    cache.check_integrity()


def test_duplicate_pages_go_back() -> None:
    """Two requests that computed the same page share one, and the other is freed."""
    allocator, cache = build(4)
    first = store(allocator, cache, [1, 2])
    pages = allocator.allocate(2)
    assert pages is not None
    second = cache.extend(cache.root, [1, 2, 3, 4], 4, pages)
    assert pages == cache.pages(second)
    assert second.parent is first
    assert (cache.num_pages, allocator.num_free) == (2, 2)
    cache.check_integrity(locked_nodes=[first, second])


def test_extension_moves_the_lock() -> None:
    """After an extension one unlock of the new node frees the whole path."""
    allocator, cache = build(4)
    ids = [1, 2, 3, 4, 5, 6]
    pages = allocator.allocate(3)
    assert pages is not None
    node = cache.extend(cache.root, ids, 3, pages)
    assert node.depth == 1
    node = cache.extend(node, ids, 6, pages)
    assert (node.depth, cache.num_evictable, cache.evict(3)) == (3, 0, 0)
    cache.unlock(node)
    assert (cache.num_unlocked(node), cache.num_evictable) == (3, 3)
    assert cache.flush() == 3
    assert allocator.num_free == 4


def test_eviction_is_least_recently_used_and_spares_locked_paths() -> None:
    """A locked path stays; of the others the one unused for longest goes first."""
    allocator, cache = build(6)
    keep(allocator, cache, [1, 2])
    keep(allocator, cache, [3, 4])
    locked = store(allocator, cache, [5, 6, 7, 8])
    used = cache.find([1, 2], 1)
    cache.lock(used)
    cache.unlock(used)
    assert cache.evict(1) == 1
    assert (depth(cache, [1, 2]), depth(cache, [3, 4])) == (1, 0)
    assert cache.flush() == 1
    assert depth(cache, [5, 6, 7, 8]) == 2
    cache.unlock(locked)
    assert cache.flush() == 2
    assert allocator.num_free == 6


def test_looking_is_not_using() -> None:
    """A search, as for a request that waits, does not keep pages from eviction."""
    allocator, cache = build(6)
    keep(allocator, cache, [1, 2])
    keep(allocator, cache, [3, 4])
    assert depth(cache, [1, 2]) == 1
    cache.evict(1)
    assert (depth(cache, [1, 2]), depth(cache, [3, 4])) == (0, 1)


def test_lost_page_is_noticed() -> None:
    """The integrity check fails when a page has no owner."""
    allocator, cache = build(2)
    allocator.allocate(1)
    with pytest.raises(AssertionError, match="lost"):
        cache.check_integrity()


def test_lost_lock_is_noticed() -> None:
    """The integrity check fails when a lock has no holder."""
    allocator, cache = build(2)
    store(allocator, cache, [1, 2])
    with pytest.raises(AssertionError, match="lock is lost"):
        cache.check_integrity()


def test_unlocking_twice_is_noticed() -> None:
    """A second unlock is our own bug, and says so."""
    allocator, cache = build(2)
    node = store(allocator, cache, [1, 2])
    cache.unlock(node)
    with pytest.raises(AssertionError, match="more often"):
        cache.unlock(node)


class Slow:
    """The same cache as a flat table of prefixes, with eviction by looking at all of them."""

    def __init__(self) -> None:
        self.last_used: dict[tuple[int, ...], int] = {}
        self.held: list[tuple[int, ...]] = []
        self.tick = 0

    def depth(self, ids: list[int]) -> int:
        """Pages of the longest cached prefix."""
        count = 0
        while len(ids) >= (count + 1) * SIZE and tuple(ids[: (count + 1) * SIZE]) in self.last_used:
            count += 1
        return count

    def release(self, prefix: tuple[int, ...]) -> None:
        """Let go of a prefix; all its pages count as used now."""
        self.held.remove(prefix)
        self.tick += 1
        for end in range(SIZE, len(prefix) + 1, SIZE):
            self.last_used[prefix[:end]] = self.tick

    def evict(self, count: int) -> list[tuple[int, ...]]:
        """Take out leaves that nobody holds, oldest first; return them."""
        gone = []
        for _ in range(count):
            leaves = [
                prefix
                for prefix in self.last_used
                if not any(p != prefix and p[: len(prefix)] == prefix for p in self.last_used)
                and not any(p[: len(prefix)] == prefix for p in self.held)
            ]
            if not leaves:
                break
            oldest = min(leaves, key=lambda prefix: self.last_used[prefix])
            del self.last_used[oldest]
            gone.append(oldest)
        return gone


@pytest.mark.parametrize("seed", range(20))
def test_random_events_agree_with_a_flat_table(seed: int) -> None:
    """Random finds, extensions, locks, evictions: the same pages stay, each with one owner."""
    rng = random.Random(seed)
    allocator, cache = build(24)
    slow = Slow()
    locked: list[tuple[Node, tuple[int, ...]]] = []
    for _ in range(250):
        ids = [rng.randint(0, 1) for _ in range(rng.randint(0, 11))]
        full = len(ids) // SIZE
        node = cache.find(ids, full)
        assert node.depth == slow.depth(ids)
        cache.lock(node)
        prefix = tuple(ids[: node.depth * SIZE])
        slow.held.append(prefix)
        need = full - node.depth - allocator.num_free
        freed = slow.evict(need)
        assert cache.evict(need) == len(freed)
        new = allocator.allocate(full - node.depth)
        if new is not None:
            pages = cache.pages(node) + new
            node = cache.extend(node, ids, len(ids), pages)
            slow.held.remove(prefix)
            prefix = tuple(ids[: full * SIZE])
            for end in range(SIZE, len(prefix) + 1, SIZE):
                slow.last_used.setdefault(prefix[:end], 0)
            slow.held.append(prefix)
            assert pages == cache.pages(node)
        locked.append((node, prefix))
        while locked and (len(locked) > 3 or rng.random() < 0.5):
            node, prefix = locked.pop(rng.randrange(len(locked)))
            cache.unlock(node)
            slow.release(prefix)
        assert cache.num_pages == len(slow.last_used)
        cache.check_integrity(locked_nodes=[node for node, _ in locked if node.depth])
    for node, _ in locked:
        cache.unlock(node)
    cache.flush()
    assert allocator.num_free == 24
