"""Frameworks that applications use: langchain-openai, litellm, instructor, npm's openai."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.conformance.conftest import Scripted

# Their own warnings are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")

NODE_SCRIPT = Path(__file__).parent / "client.mjs"
LITELLM_SCRIPT = Path(__file__).parent / "litellm_client.py"


def run(
    scripted: Scripted, command: list[str], cwd: Path | None = None, **environment: str
) -> None:
    """Run a client's script to its last line against the server."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "BASE_URL": f"{scripted.url}/v1", **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith("all right")


def test_langchain(scripted: Scripted) -> None:
    """invoke, batch, stream, and the usage in its metadata."""
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    model = ChatOpenAI(
        model="default", base_url=f"{scripted.url}/v1", api_key=SecretStr("none"), stream_usage=True
    )
    answer = model.invoke("Hi 山")
    assert answer.content == "Hi 山"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] > 0
    assert [m.content for m in model.batch(["ab", "cd"])] == ["ab", "cd"]
    chunks = list(model.stream("Result: 水"))
    assert "".join(str(chunk.content) for chunk in chunks) == "Result: 水"
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.usage_metadata is not None
    unstreamed = model.invoke("Result: 水").usage_metadata
    assert unstreamed is not None
    assert whole.usage_metadata["output_tokens"] == unstreamed["output_tokens"]


def test_litellm(scripted: Scripted) -> None:
    """completion, streaming, async, text completion, errors by type."""
    # In a process of its own: it leaves event loops and workers behind.
    run(scripted, [sys.executable, str(LITELLM_SCRIPT)], LITELLM_LOCAL_MODEL_COST_MAP="True")


def test_instructor(scripted: Scripted) -> None:
    """A model's JSON becomes an object, in the mode that needs no grammar."""
    import instructor
    from openai import OpenAI

    class River(BaseModel):
        name: str
        length_km: int

    with OpenAI(base_url=f"{scripted.url}/v1", api_key="none") as client:
        patched = instructor.from_openai(client, mode=instructor.Mode.MD_JSON)
        said = json.dumps({"name": "Aare", "length_km": 288})
        river = patched.chat.completions.create(
            model="default",
            response_model=River,
            max_retries=0,
            messages=[
                {"role": "system", "content": "Answer in JSON."},
                {"role": "assistant", "content": "Which river?"},
                {"role": "user", "content": f"```json\n{said}\n```"},
            ],
        )
    assert river.model_dump() == {"name": "Aare", "length_km": 288}


@pytest.mark.skipif(not shutil.which("npm"), reason="needs Node.js and npm")
def test_node(scripted: Scripted, tmp_path: Path) -> None:
    """The `openai` package of npm: create, stream, helper, errors, leaving early."""
    shutil.copy(NODE_SCRIPT, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module", "private": true}')
    install = ["npm", "install", "--no-audit", "--no-fund", "--silent", "openai@^6"]
    subprocess.run(install, cwd=tmp_path, check=True, timeout=200)
    run(scripted, ["node", NODE_SCRIPT.name], cwd=tmp_path)
    assert scripted.server.wait_idle()["num_used_pages"] == 0
