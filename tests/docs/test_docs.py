"""Every flag, route, error code, parameter and model is on a docs page; the examples run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import headwater.errors
from headwater.errors import HeadwaterError
from headwater.messages.params import SamplingParams
from headwater.models.table import FAMILIES
from headwater.prompt.chat import CONVERSATIONS
from headwater.server.routes import load_routers

ROOT = Path(__file__).parents[2]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
ALL = "\n".join(PAGES.values())


def test_the_flags_page_is_up_to_date() -> None:
    """`scripts/docs` makes it from the configuration."""
    done = subprocess.run([sys.executable, ROOT / "scripts" / "docs", "--check"], check=False)
    assert done.returncode == 0, "run scripts/docs"


def test_every_route_is_documented() -> None:
    """By its path."""
    for router in load_routers():
        for route in router.routes:
            path = getattr(route, "path", "")
            if getattr(route, "include_in_schema", True):
                assert path.split("{")[0].rstrip("/") in ALL, path


def test_every_error_code_is_documented() -> None:
    """Those that a client can meet."""
    for name in headwater.errors.__all__:
        error = getattr(headwater.errors, name)
        is_error = isinstance(error, type) and issubclass(error, HeadwaterError)
        if is_error and error.code not in ("config_error", "model_load_error"):
            assert f"`{error.code}`" in PAGES["native-api.md"], name


def test_every_sampling_parameter_is_documented() -> None:
    """In the native API's table."""
    for name in SamplingParams.__struct_fields__:
        assert f"`{name}`" in PAGES["native-api.md"], name


def test_every_model_family_is_documented() -> None:
    """By its architecture."""
    for architecture in FAMILIES:
        assert f"`{architecture}`" in PAGES["models.md"], architecture


def test_every_conversation_is_documented() -> None:
    """By its names, with its stop strings."""
    rows = PAGES["chat-templates.md"].replace("\\|", "|").splitlines()
    for conversation in CONVERSATIONS:
        (row,) = [row for row in rows if row.startswith(f"| `{conversation.name}`")]
        for text in (*conversation.aliases, *conversation.stop):
            assert f"`{text}`" in row, conversation.name


def test_links_between_pages_lead_somewhere() -> None:
    """In the README and the docs."""
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


@pytest.mark.model
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_python_examples_run(page: str) -> None:
    """Those that need no server."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if "openai" not in code:
            done = subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout
