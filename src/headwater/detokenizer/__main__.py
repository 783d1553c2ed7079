"""`python -m headwater.detokenizer --socket-dir DIR`: the detokenizer process."""

import argparse
import signal
import sys
from pathlib import Path

from headwater.config import Config
from headwater.detokenizer.loop import run
from headwater.log import setup_logging


def main() -> int:
    """Read the configuration that the parent wrote, and run until the parent is gone."""
    parser = argparse.ArgumentParser(prog="python -m headwater.detokenizer")
    parser.add_argument("--socket-dir", type=Path, required=True)
    parser.add_argument("--number", type=int, default=0)
    args = parser.parse_args()
    socket_dir: Path = args.socket_dir
    # A terminal sends ^C to the whole group; only the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    config = Config.from_json((socket_dir / "config.json").read_text(encoding="utf-8"))
    setup_logging(config.logging.log_level, process="detokenizer")
    return run(socket_dir, args.number)


if __name__ == "__main__":
    sys.exit(main())
