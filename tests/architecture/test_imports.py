"""ARCHITECTURE.md's import table is the rule; this test reads it from there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headwater"
ROW = re.compile(r"^\| `([^|]+)` \| ([^|]*) \|", re.MULTILINE)


def allowed() -> dict[str, set[str]]:
    """Package to the headwater packages that it may import."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return {name: set(re.findall(r"[a-z_]+", names)) for name, names in ROW.findall(text)}


def imports(path: Path) -> set[str]:
    """First-level headwater packages that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {n.split(".")[1] for n in names if n.startswith("headwater.")}
    return found


def test_every_package_imports_only_what_the_table_allows() -> None:
    """Imports point one way, and every package has a row."""
    table = allowed()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if name in ("__init__", "__main__"):  # names and a call of `cli`
            continue
        assert name in table, f"{name} has no row in ARCHITECTURE.md"
        extra = imports(path) - table[name] - {name}
        assert not extra, f"{path} imports {extra}"


def test_every_row_is_a_package() -> None:
    """The table names nothing that does not exist."""
    for name in allowed():
        assert (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file(), name
