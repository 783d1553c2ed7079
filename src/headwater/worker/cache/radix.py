"""The radix prefix cache over whole KV pages; it knows ids and page numbers, not requests.

Each node holds exactly one page and is keyed by that page's token ids, so a path from the root
spells a prompt prefix. The first key of a path also holds the salt, so that prefixes of different
salts never meet. Time is a counter of unlocks.

A node is, at any time, one of:

    locked       num_locks > 0, and so are its ancestors; a request uses it
    evictable    num_locks == 0, no children; it has one entry in the eviction heap
    covered      num_locks == 0, has children, all of them unlocked; evictable after them
    evicted      out of the tree: parent is None, its page is free

An entry of the heap may be out of date: its tick is then too low, or its node covered or locked.
That is put right when the entry comes to the top, so using a path costs no more than writing the
tick, and evicting a page costs O(log n).
"""

import heapq
from collections import Counter
from collections.abc import Sequence

from headwater.worker.cache.pages import PageAllocator

__all__ = ["Key", "Node", "RadixCache"]

Key = tuple[int | str, ...]


class Node:
    """One cached page.

    Attributes:
        parent: The page before this one; None for the root and for an evicted node.
        key: The page's token ids; before them the salt, in the first page of a path.
        page: Its page number; -1 for the root.
        depth: Pages on the path down to this one; 0 for the root.
        children: The pages that follow, by key.
        num_locks: Locks on this node and below it.
        last_used: Tick of the last unlock; while it is locked it is in use anyway.
        is_queued: It has an entry in the eviction heap.
    """

    __slots__ = (
        "children",
        "depth",
        "is_queued",
        "key",
        "last_used",
        "num_locks",
        "page",
        "parent",
    )

    def __init__(self, parent: "Node | None", key: Key, page: int) -> None:
        self.parent = parent
        self.key = key
        self.page = page
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children: dict[Key, Node] = {}
        self.num_locks = 0
        self.last_used = 0
        self.is_queued = False


class RadixCache:
    """Finds, keeps and evicts the pages of prompt prefixes.

    Args:
        allocator: Where evicted and duplicate pages go back to.
        page_size: Tokens in a page.

    Attributes:
        root: The empty prefix; always there.
        num_pages: Pages in the cache.
        num_locked: Pages among them that are locked.
    """

    def __init__(self, allocator: PageAllocator, page_size: int) -> None:
        self._allocator = allocator
        self._page_size = page_size
        self._tick = 0
        self._heap: list[tuple[int, int, Node]] = []
        self.root = Node(None, (), -1)
        self.num_pages = 0
        self.num_locked = 0

    @property
    def num_evictable(self) -> int:
        """Pages that `evict` could free now."""
        return self.num_pages - self.num_locked

    def next_key(self, node: Node, ids: Sequence[int], salt: str = "") -> Key:
        """Key of the page of `ids` that follows the prefix `node`."""
        size = self._page_size
        first = node.depth * size
        key = tuple(ids[first : first + size])
        return (salt, *key) if salt and node is self.root else key

    def find(
        self, ids: Sequence[int], max_pages: int, salt: str = "", start: Node | None = None
    ) -> Node:
        """Find the longest cached prefix of `ids`, in at most `max_pages` whole pages.

        Args:
            ids: Token ids, at least `max_pages` pages of them.
            max_pages: Longest prefix wanted.
            salt: Namespace of the prefix.
            start: A node found earlier for the same ids and salt, from which to go on; if it was
                evicted, the search begins at the root.

        Returns:
            The last node of the prefix. It stays valid while it is locked, or until the next
            eviction.
        """
        node = self.root if start is None or start.parent is None else start
        while node.depth < max_pages:
            child = node.children.get(self.next_key(node, ids, salt))
            if child is None:
                break
            node = child
        return node

    def pages(self, node: Node) -> list[int]:
        """Page numbers of the path to `node`, in order."""
        pages = []
        while node.parent is not None:
            pages.append(node.page)
            node = node.parent
        pages.reverse()
        return pages

    def extend(
        self, node: Node, ids: Sequence[int], num_ids: int, pages: list[int], salt: str = ""
    ) -> Node:
        """Give the full pages of `ids[:num_ids]` beyond `node` to the cache.

        A page whose tokens are cached already under another number is freed, and the cached
        number takes its place in `pages`.

        Args:
            node: Locked by the caller (or the root); the lock moves on to the node returned.
            ids: Token ids of the caller; the path to `node` spells their beginning.
            num_ids: Ids whose keys and values the pages hold; a last partial page is ignored.
            pages: The caller's page table; changed in place.
            salt: Namespace of the prefix.

        Returns:
            The last node; the caller owns `pages[node.depth:]`, the cache owns those before.
        """
        while node.depth < num_ids // self._page_size:
            index = node.depth
            key = self.next_key(node, ids, salt)
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = Node(node, key, pages[index])
                self.num_pages += 1
            else:
                self._allocator.free([pages[index]])
                pages[index] = child.page
            self._lock_one(child)
            node = child
        return node

    def lock(self, node: Node) -> None:
        """Keep the path to `node` from eviction, once more."""
        while node.parent is not None:
            self._lock_one(node)
            node = node.parent

    def unlock(self, node: Node) -> None:
        """Undo one `lock` of the same node; its path counts as used now."""
        self._tick += 1
        end = node
        while node.parent is not None:
            assert node.num_locks > 0, "a node is unlocked more often than it was locked"
            node.num_locks -= 1
            node.last_used = self._tick
            if node.num_locks == 0:
                self.num_locked -= 1
            node = node.parent
        self._offer(end)

    def num_unlocked(self, node: Node) -> int:
        """Pages of the path to `node` that a lock would take from the evictable ones."""
        count = 0
        while node.parent is not None and node.num_locks == 0:
            count += 1
            node = node.parent
        return count

    def evict(self, count: int) -> int:
        """Free up to `count` unlocked pages, least recently used first; return how many."""
        freed = 0
        while freed < count and self._heap:
            tick, _, node = heapq.heappop(self._heap)
            node.is_queued = False
            if tick == node.last_used and _is_evictable(node):
                self._remove(node)
                freed += 1
            else:
                self._offer(node)
        return freed

    def flush(self) -> int:
        """Free every unlocked page; return how many."""
        return self.evict(self.num_evictable)

    def check_integrity(
        self, private_pages: Sequence[int] = (), locked_nodes: Sequence[Node] = ()
    ) -> None:
        """Check that every page has exactly one owner and that locks and counts are right.

        Args:
            private_pages: Pages that requests own outside the cache.
            locked_nodes: One node for each lock that is held.

        Raises:
            AssertionError: The cache, the allocator and the requests disagree.
        """
        nodes = self._nodes()
        self._allocator.check_integrity([n.page for n in nodes] + list(private_pages))
        assert len(nodes) == self.num_pages, "the page count is off"
        assert sum(n.num_locks > 0 for n in nodes) == self.num_locked, "the lock count is off"
        held = Counter(locked_nodes)
        queued = Counter(entry[2] for entry in self._heap)
        for node in nodes:
            below = sum(child.num_locks for child in node.children.values())
            assert node.num_locks == held[node] + below, "a lock is lost"
            assert node.parent is not None, "an evicted node is in the tree"
            assert node.parent.children[node.key] is node, "a node is under another's key"
            assert node.depth == node.parent.depth + 1, "a node is at another's depth"
            assert queued[node] == node.is_queued, "a node's heap entries are off"
            assert node.is_queued or not _is_evictable(node), "a page can never be evicted"

    def _lock_one(self, node: Node) -> None:
        node.num_locks += 1
        if node.num_locks == 1:
            self.num_locked += 1

    def _offer(self, node: Node) -> None:
        """Enter a node that may be evicted in the heap, unless it is there."""
        if _is_evictable(node) and not node.is_queued and node is not self.root:
            node.is_queued = True
            heapq.heappush(self._heap, (node.last_used, node.page, node))

    def _remove(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None, "an evicted node is evicted again"
        del parent.children[node.key]
        node.parent = None
        self._allocator.free([node.page])
        self.num_pages -= 1
        self._offer(parent)

    def _nodes(self) -> list[Node]:
        found, todo = [], list(self.root.children.values())
        while todo:
            node = todo.pop()
            found.append(node)
            todo.extend(node.children.values())
        return found


def _is_evictable(node: Node) -> bool:
    return not node.children and node.num_locks == 0
