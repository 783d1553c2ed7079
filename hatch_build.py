"""Builds the native operations when the package is installed; without a compiler it goes on."""

import importlib.util
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = Path("src/headwater/kernels/native/_native.so")


class NativeBuildHook(BuildHookInterface[Any]):
    """The hook that pyproject.toml names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library beside the Python that loads it.

        `HEADWATER_NO_NATIVE=1` leaves it out, as if there were no compiler.
        """
        root = Path(self.root)
        (root / LIBRARY).unlink(missing_ok=True)
        if os.environ.get("HEADWATER_NO_NATIVE"):
            return
        spec = importlib.util.spec_from_file_location("headwater_build", root / "csrc" / "build.py")
        assert spec is not None and spec.loader is not None  # noqa: PT018
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        try:
            module.build(root / LIBRARY)
        except module.BuildError as err:
            self.app.display_warning(f"headwater goes without its native operations: {err}")
            return
        build_data["artifacts"].append(f"/{LIBRARY}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
