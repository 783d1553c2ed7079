"""One logging setup for every process: key=value lines on standard error.

It knows no request and no process; each part takes `logging.getLogger("headwater.<part>")`.
"""

import logging
import sys

__all__ = ["LOG_LEVELS", "setup_logging"]

LOG_LEVELS = ("debug", "info", "warning", "error")


def setup_logging(level: str, *, process: str) -> None:
    """Send headwater's log records to standard error.

    Args:
        level: One of `LOG_LEVELS`.
        process: Short name of this process, in every line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(f"%(asctime)s %(levelname)s process={process} %(name)s: %(message)s")
    )
    logger = logging.getLogger("headwater")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
