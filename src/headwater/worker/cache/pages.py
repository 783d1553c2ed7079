"""The KV page allocator; it knows page numbers, not what is stored in them.

Ownership of every page, at any time, is exactly one of:

    free      in the allocator's free list
    cached    in one node of the radix cache
    private   handed out to a request that has not given it to the cache
"""

from collections.abc import Iterable

__all__ = ["PageAllocator"]


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
