"""Tables of open sets name exactly the files of their folders."""

import importlib
from pathlib import Path

from headwater.cli.main import COMMANDS
from headwater.models.table import FAMILIES
from headwater.server.routes import ENDPOINTS

PACKAGE = Path(__file__).parents[2] / "src" / "headwater"


def test_every_family_file_is_in_the_table() -> None:
    """And every entry is a function that exists."""
    files = {path.stem for path in (PACKAGE / "models" / "families").glob("*.py")} - {"__init__"}
    named = set()
    for target in FAMILIES.values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
        named.add(module.rsplit(".", 1)[1])
    assert named == files


def test_every_module_with_a_router_is_in_the_table() -> None:
    """An endpoint that is not in the table would not be served."""
    found = set()
    for path in (PACKAGE / "server").rglob("*.py"):
        if "\nrouter = APIRouter(" in path.read_text(encoding="utf-8"):
            parts = path.relative_to(PACKAGE).with_suffix("").parts
            found.add(".".join(("headwater", *parts)))
    assert found == set(ENDPOINTS)


def test_every_command_has_its_functions() -> None:
    """A command is a module with `add_options` and `run`."""
    for module, _ in COMMANDS.values():
        loaded = importlib.import_module(module)
        assert callable(loaded.add_options)
        assert callable(loaded.run)
