"""What happens when pages run out: the youngest running request gives its pages back.

Order of who pays for a page that is needed: free pages, then evictable pages of the cache, then
the request that arrived last, even if it is the one in need. The oldest running request is
retracted only when it runs alone, and then it fits; so it always advances, and everything ends.
"""

from headwater.worker.scheduler.page_tables import PageTables
from headwater.worker.scheduler.queue import WaitingQueue
from headwater.worker.scheduler.request import Request

__all__ = ["make_room"]


def make_room(running: dict[int, Request], tables: PageTables, queue: WaitingQueue) -> int:
    """Give every running request room for its tokens; return how many were retracted for it.

    A retracted request keeps its answer, its records and its counts. Its filled pages stay in the
    cache until somebody needs them.
    """
    num_retracted = 0
    for request in tables.in_need(running.values()):
        while request.uid in running and not tables.grow(request):
            youngest = max(running.values(), key=lambda r: r.arrival)
            assert len(running) > 1, "a request that runs alone does not fit"
            _retract(running, youngest, tables, queue)
            num_retracted += 1
    return num_retracted


def _retract(
    running: dict[int, Request], request: Request, tables: PageTables, queue: WaitingQueue
) -> None:
    del running[request.uid]
    tables.release(request)
    request.num_retractions += 1
    queue.put_back(request)
