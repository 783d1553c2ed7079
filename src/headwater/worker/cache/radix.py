"""The radix prefix cache over whole KV pages; it knows ids and page numbers, not requests.

Each node holds exactly one page and is keyed by that page's token ids, so a path from the root
spells a prompt prefix. Locking a node locks its whole path; only unlocked leaves are evicted,
least recently used first. Time is a counter that the cache advances itself.
"""

import heapq
from collections.abc import Iterator, Sequence

from headwater.worker.cache.pages import PageAllocator

__all__ = ["Node", "RadixCache"]


class Node:
    """One cached page.

    Attributes:
        parent: The page before this one; None for the root and for an evicted node.
        key: The page's token ids.
        page: Its page number; -1 for the root.
        num_locks: Requests whose prefix goes through this node.
        last_used: Tick of the last match or insert that touched it.
    """

    __slots__ = ("children", "key", "last_used", "num_locks", "page", "parent")

    def __init__(self, parent: "Node | None", key: tuple[int, ...], page: int, tick: int) -> None:
        self.parent = parent
        self.key = key
        self.page = page
        self.children: dict[tuple[int, ...], Node] = {}
        self.num_locks = 0
        self.last_used = tick


class RadixCache:
    """Finds, keeps and evicts the pages of prompt prefixes.

    Args:
        allocator: Where evicted and duplicate pages go back to.
        page_size: Tokens in a page.
    """

    def __init__(self, allocator: PageAllocator, page_size: int) -> None:
        self._allocator = allocator
        self._page_size = page_size
        self._root = Node(None, (), -1, 0)
        self._tick = 0
        self.num_pages = 0

    def match(self, ids: Sequence[int]) -> tuple[list[int], Node]:
        """Find the longest cached prefix of `ids`, in whole pages.

        Returns:
            The pages, in order, and the last node; they stay valid only while it is locked, or
            until the next `evict` or `flush`.
        """
        self._tick += 1
        node, pages = self._root, []
        for key in self._page_keys(ids):
            child = node.children.get(key)
            if child is None:
                break
            node = child
            node.last_used = self._tick
            pages.append(node.page)
        return pages, node

    def insert(self, ids: Sequence[int], pages: Sequence[int]) -> tuple[list[int], Node]:
        """Give the full pages of `ids` to the cache.

        A page whose tokens are cached already under another number is freed, and the caller
        must go on with the cached one.

        Args:
            ids: Token ids whose keys and values the pages hold; a last partial page is ignored.
            pages: Page numbers, at least one for each full page.

        Returns:
            The cached pages in order, and the last node.
        """
        self._tick += 1
        node, cached = self._root, []
        for key, page in zip(self._page_keys(ids), pages, strict=False):
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = Node(node, key, page, self._tick)
                self.num_pages += 1
            elif child.page != page:
                self._allocator.free([page])
            child.last_used = self._tick
            cached.append(child.page)
            node = child
        return cached, node

    def lock(self, node: Node) -> None:
        """Keep the path to `node` from eviction, once more."""
        for step in self._path(node):
            step.num_locks += 1

    def unlock(self, node: Node) -> None:
        """Undo one `lock` of the same node."""
        for step in self._path(node):
            assert step.num_locks > 0, "a node is unlocked more often than it was locked"
            step.num_locks -= 1

    def evict(self, count: int) -> int:
        """Free up to `count` unlocked pages, least recently used first; return how many."""
        heap = [(n.last_used, n.page, n) for n in self._nodes() if self._is_evictable(n)]
        heapq.heapify(heap)
        freed = 0
        while heap and freed < count:
            _, _, node = heapq.heappop(heap)
            parent = node.parent
            assert parent is not None
            del parent.children[node.key]
            node.parent = None
            self._allocator.free([node.page])
            self.num_pages -= 1
            freed += 1
            if parent is not self._root and self._is_evictable(parent):
                heapq.heappush(heap, (parent.last_used, parent.page, parent))
        return freed

    def flush(self) -> int:
        """Free every unlocked page; return how many."""
        return self.evict(self.num_pages)

    def check_integrity(self, private_pages: Sequence[int] = ()) -> None:
        """Check that every page has exactly one owner and that locks are consistent.

        Args:
            private_pages: Pages that requests own outside the cache.

        Raises:
            AssertionError: The cache, the allocator and the requests disagree.
        """
        nodes = self._nodes()
        owned = [n.page for n in nodes] + list(private_pages)
        assert len(set(owned)) == len(owned), "a page has two owners"
        assert len(nodes) == self.num_pages, "the page count is off"
        total = len(owned) + self._allocator.num_free
        assert total == self._allocator.num_pages, "a page is lost"
        for node in nodes:
            assert node.num_locks >= sum(c.num_locks for c in node.children.values())

    def _page_keys(self, ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
        # Lazy: a match that ends early must not pay for the rest of a long prompt.
        size = self._page_size
        return (tuple(ids[i : i + size]) for i in range(0, len(ids) - size + 1, size))

    def _path(self, node: Node) -> list[Node]:
        path = []
        while node.parent is not None:
            path.append(node)
            node = node.parent
        return path

    def _nodes(self) -> list[Node]:
        found, todo = [], list(self._root.children.values())
        while todo:
            node = todo.pop()
            found.append(node)
            todo.extend(node.children.values())
        return found

    @staticmethod
    def _is_evictable(node: Node) -> bool:
        return not node.children and node.num_locks == 0
