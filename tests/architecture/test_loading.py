"""What a process loads: no torch outside the worker, and policy without it."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers")


def loaded_by(module: str) -> set[str]:
    """Heavy libraries that importing a module loads, in a fresh process."""
    code = f"import sys, {module}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "headwater",
        "headwater.engine",
        "headwater.server.run",
        "headwater.cli.main",
        "headwater.detokenizer.loop",
        "headwater.worker.scheduler.scheduler",
        "headwater.worker.loop",
        "headwater.worker.runner.scripted",
        "headwater.worker.startup",
    ],
)
def test_no_torch(module: str) -> None:
    """Neither torch nor transformers: they cost seconds and hundreds of megabytes."""
    assert not loaded_by(module)


def test_the_check_can_fail() -> None:
    """A module that needs torch shows up."""
    assert "torch" in loaded_by("headwater.kernels")
