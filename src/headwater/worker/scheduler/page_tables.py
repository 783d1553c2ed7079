"""Gives pages to requests and takes them back; it knows one request at a time, and no policy.

event      private pages of the request         its lock
start      allocated, for all of its tokens     taken on the prefix that was found
grow       one more when its tokens need it     stays
share      full, computed ones go to the cache  moves on to the last of them
release    go back to the allocator             given up; the shared pages may be evicted
"""

from collections.abc import Iterable

from headwater.worker.cache.pages import PageAllocator, num_pages_for
from headwater.worker.cache.radix import Key, Node, RadixCache
from headwater.worker.scheduler.options import SchedulerOptions
from headwater.worker.scheduler.request import Request

__all__ = ["PageTables"]


class PageTables:
    """The pool, the radix cache and the page tables of requests.

    Args:
        options: The scheduler's settings.

    Attributes:
        cache: The radix cache; it stays empty when sharing is disabled.
    """

    def __init__(self, options: SchedulerOptions) -> None:
        self._page_size = options.page_size
        self._is_shared = not options.disable_radix_cache
        self._allocator = PageAllocator(options.num_pages)
        self.cache = RadixCache(self._allocator, options.page_size)

    @property
    def num_free(self) -> int:
        """Pages that nobody owns."""
        return self._allocator.num_free

    @property
    def num_used(self) -> int:
        """Pages that requests need: their own and the cached ones they have locked."""
        return self._allocator.num_pages - self.num_free - self.cache.num_evictable

    def find(self, request: Request) -> Node:
        """The longest cached prefix that a waiting request may use."""
        if self._is_shared:
            max_pages = request.num_reusable // self._page_size
            salt = request.generate.cache_salt
            request.found = self.cache.find(request.token_ids, max_pages, salt, request.found)
        return request.found

    def page_to_find(self, request: Request) -> tuple[Node, Key] | None:
        """The page that would make a waiting request's cached prefix longer, if any could."""
        node = self.find(request)
        if not self._is_shared or node.depth >= request.num_reusable // self._page_size:
            return None
        return node, self.cache.next_key(node, request.token_ids, request.generate.cache_salt)

    def page_to_share(self, request: Request) -> tuple[Node, Key]:
        """The page that a running request will give to the cache next.

        Where the tokens of a full page are not known yet, it is a page that nobody can ask for.
        """
        key = self.cache.next_key(request.node, request.token_ids, request.generate.cache_salt)
        return request.node, key

    def start(self, request: Request, num_running: int) -> bool:
        """Give a waiting request pages for all its tokens; False, and nothing, if too few are left.

        A page more is asked for each request that runs, so that they can grow. A request that was
        retracted so comes back when others have ended, not to be retracted again at once; and
        alone, a request always starts.
        """
        node = self.find(request)
        need = num_pages_for(len(request.token_ids), self._page_size) - node.depth
        available = self.num_free + self.cache.num_evictable - self.cache.num_unlocked(node)
        if need + num_running > available:
            return False
        self.cache.lock(node)
        request.node = node
        request.pages = self.cache.pages(node) + self._allocate(need)
        request.num_computed = node.depth * self._page_size
        return True

    def in_need(self, running: Iterable[Request]) -> list[Request]:
        """The running requests whose last token has no page yet."""
        size = self._page_size
        return [r for r in running if len(r.token_ids) > len(r.pages) * size]

    def grow(self, request: Request) -> bool:
        """Give a running request one more page; False if there is none."""
        if self.num_free + self.cache.num_evictable == 0:
            return False
        request.pages += self._allocate(1)
        return True

    def share(self, request: Request) -> None:
        """Give the pages that a request has filled to the cache; its page table may change."""
        if self._is_shared and request.num_computed // self._page_size > request.node.depth:
            request.node = self.cache.extend(
                request.node,
                request.token_ids,
                request.num_computed,
                request.pages,
                request.generate.cache_salt,
            )

    def release(self, request: Request) -> None:
        """Take a request's pages and lock; it has computed nothing any more."""
        self._allocator.free(request.pages[request.node.depth :])
        self.cache.unlock(request.node)
        request.pages = []
        request.node = self.cache.root
        request.num_computed = 0

    def check_integrity(self, running: Iterable[Request]) -> None:
        """Check that the tables of all running requests, the cache and the pool agree.

        Raises:
            AssertionError: They do not.
        """
        private: list[int] = []
        locked: list[Node] = []
        for request in running:
            depth = request.node.depth
            assert request.pages[:depth] == self.cache.pages(request.node), "pages are not shared"
            held = len(request.pages) * self._page_size
            assert request.num_computed <= held, "a computed token has no page"
            assert depth * self._page_size <= request.num_computed, "a shared page is not computed"
            private += request.pages[depth:]
            if depth:
                locked.append(request.node)
        self.cache.check_integrity(private, locked)

    def _allocate(self, count: int) -> list[int]:
        self.cache.evict(count - self.num_free)
        pages = self._allocator.allocate(count)
        assert pages is not None, "pages were counted that are not there"
        return pages
