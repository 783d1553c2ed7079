"""The KV page allocator; it knows page numbers, not what is stored in them.

Ownership of every page, at any time, is exactly one of:

    free      in the allocator's free list
    cached    in one node of the radix cache
    private   handed out to a request that has not given it to the cache
"""

from collections.abc import Iterable

__all__ = ["PageAllocator", "num_pages_for"]


def num_pages_for(num_tokens: int, page_size: int) -> int:
    """Pages that hold `num_tokens` tokens, the last one perhaps in part."""
    return -(-num_tokens // page_size)


class PageAllocator:
    """Hands out page numbers from [0, num_pages).

    Args:
        num_pages: Size of the pool.
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))
        self._is_free = bytearray(b"\x01" * num_pages)

    @property
    def num_free(self) -> int:
        """Pages that nobody owns."""
        return len(self._free)

    def allocate(self, count: int) -> list[int] | None:
        """Hand out `count` pages, or None (and nothing) when there are not enough."""
        if count > len(self._free):
            return None
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._is_free[page] = 0
        return pages

    def free(self, pages: Iterable[int]) -> None:
        """Take pages back.

        Raises:
            AssertionError: A page is already free; somebody has lost track of ownership.
        """
        for page in pages:
            assert not self._is_free[page], f"page {page} freed twice"
            self._is_free[page] = 1
            self._free.append(page)

    def check_integrity(self, owned_pages: Iterable[int]) -> None:
        """Check that every page is either free or owned once.

        Args:
            owned_pages: All pages that the cache and the requests own.

        Raises:
            AssertionError: A page is lost, or has two owners.
        """
        owned = list(owned_pages)
        assert len(set(owned)) == len(owned), "a page has two owners"
        assert not any(self._is_free[page] for page in owned), "an owned page is free"
        assert len(owned) + len(self._free) == self.num_pages, "a page is lost"
        assert sum(self._is_free) == len(self._free), "the free list is off"
