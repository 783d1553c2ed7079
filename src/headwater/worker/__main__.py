"""`python -m headwater.worker --socket-dir DIR`: the worker process."""

import argparse
import logging
import shutil
import signal
import sys
from pathlib import Path

from headwater.config import Config
from headwater.errors import HeadwaterError
from headwater.log import setup_logging
from headwater.worker.startup import start_worker

log = logging.getLogger("headwater.worker")

START_FAILED = 2


def main() -> int:
    """Read the configuration that the parent wrote, load the model, serve.

    Returns:
        0 when the parent ended, 1 after an error of our own, 2 when the model cannot be served.
    """
    parser = argparse.ArgumentParser(prog="python -m headwater.worker")
    parser.add_argument("--socket-dir", type=Path, required=True)
    socket_dir: Path = parser.parse_args().socket_dir
    # A terminal sends ^C to the whole group; only the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    config = Config.from_json((socket_dir / "config.json").read_text(encoding="utf-8"))
    setup_logging(config.logging.log_level, process="worker")
    try:
        worker = start_worker(config, socket_dir)
    except HeadwaterError as err:
        log.error("%s", err.message)
        return START_FAILED
    try:
        worker.run()
    except Exception:
        log.exception("the worker failed")
        return 1
    # The parent removes it as well, unless it was killed.
    shutil.rmtree(socket_dir, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
