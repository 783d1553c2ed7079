"""A scripted model for the tests of this folder, each of which starts its own processes."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.scripted import ScriptTokenizer, make_scripted_model


@dataclass
class Model:
    """A scripted model on disk."""

    path: Path
    tokens: ScriptTokenizer


@pytest.fixture(scope="session")
def scripted_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Steps take 5 ms, so that a long answer is still running when a test acts."""
    folder = tmp_path_factory.mktemp("slow")
    return Model(folder, make_scripted_model(folder, ["ab", "cd"], step_delay_s=0.005))
