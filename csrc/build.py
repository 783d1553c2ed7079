"""Builds the shared library with the machine's C++ compiler; standard library only.

    python csrc/build.py OUTPUT [FLAG ...]

Each instruction set's file is compiled with its own flags; at run time the library picks what the
processor has.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parent
# No contraction: whether a * b + c is rounded once or twice must not depend on the optimizer.
FLAGS = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-Wno-psabi",
]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"]
SOURCES: dict[str, list[str]] = {"api.cpp": [], "isa_generic.cpp": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    SOURCES |= {"isa_avx2.cpp": AVX2, "isa_avx512.cpp": AVX512}


class BuildError(Exception):
    """There is no compiler, or it does not accept the sources; the text says which."""


def build(output: Path, extra: Sequence[str] = ()) -> None:
    """Write the shared library.

    Args:
        output: Where.
        extra: More compiler flags.

    Raises:
        BuildError: It cannot be built.
    """
    words = shlex.split(os.environ.get("CXX", "c++"))
    if shutil.which(words[0]) is None:
        raise BuildError(f"there is no C++ compiler {words[0]!r}")
    try:
        _build(words, output, ["-fopenmp", *extra])
    except BuildError:
        # Some compilers come without OpenMP; one thread is better than none.
        _build(words, output, list(extra))


def _build(compiler: list[str], output: Path, extra: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder) / f"{name}.o" for name in SOURCES]
        commands = [
            [*compiler, *FLAGS, *flags, *extra, "-c", str(FOLDER / name), "-o", str(to)]
            for (name, flags), to in zip(SOURCES.items(), objects, strict=True)
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, commands))
        library = Path(folder) / "library.so"
        _run([*compiler, "-shared", *extra, *map(str, objects), "-o", str(library)])
        output.parent.mkdir(parents=True, exist_ok=True)
        # In one move: a process may have the old one open.
        beside = output.with_name(output.name + ".new")
        shutil.copyfile(library, beside)
        os.replace(beside, output)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{shlex.join(command)}\n{done.stderr[-4000:]}")


if __name__ == "__main__":
    try:
        build(Path(sys.argv[1]), sys.argv[2:])
    except BuildError as err:
        sys.exit(str(err))
