"""Frameworks that applications use: langchain-openai, litellm, instructor, npm's openai."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.conformance.conftest import Scripted

# Their own warnings are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")

NODE_SCRIPT = Path(__file__).parent / "client.mjs"


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


def test_litellm(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """completion, streaming, async, text completion, errors by type."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    where = {"api_base": f"{scripted.url}/v1", "api_key": "none", "num_retries": 0}
    ask = {"model": "openai/default", **where}
    answer = litellm.completion(messages=[{"role": "user", "content": "Hi 山"}], **ask)
    assert answer.choices[0].message.content == "Hi 山"
    stream = litellm.completion(messages=[{"role": "user", "content": "done"}], stream=True, **ask)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "done"
    later = litellm.acompletion(messages=[{"role": "user", "content": "One two"}], **ask)
    assert asyncio.run(later).choices[0].message.content == "One two"
    text = litellm.text_completion(
        model="text-completion-openai/default", prompt="a", max_tokens=3, seed=1, **where
    )
    assert text.usage.completion_tokens == 3
    with pytest.raises(litellm.exceptions.NotFoundError):
        litellm.completion(
            model="openai/gpt-x", messages=[{"role": "user", "content": "a"}], **where
        )


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
    done = subprocess.run(
        ["node", NODE_SCRIPT.name],
        cwd=tmp_path,
        env={**os.environ, "BASE_URL": f"{scripted.url}/v1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith("all right")
    assert scripted.server.wait_idle()["num_used_pages"] == 0
