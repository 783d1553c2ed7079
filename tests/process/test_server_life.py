"""How a server starts and ends: signals, killed children, a killed parent, wrong settings."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.kit.server import Server, run_server
from tests.process.conftest import Model

FLAGS = ["--allow-scripted-model"]


def long_body(model: Model, num_tokens: int) -> dict[str, Any]:
    """A request that emits `num_tokens` tokens."""
    params = {"max_new_tokens": num_tokens, "ignore_eos": True}
    return {"input_ids": model.tokens.script("ab", "cd"), "sampling_params": params}


def in_background(server: Server, body: dict[str, Any]) -> tuple[threading.Thread, list[Any]]:
    """Send a request from a thread; its response or exception is put into the list."""
    results: list[Any] = []

    def send() -> None:
        try:
            results.append(httpx.post(f"{server.url}/generate", json=body, timeout=60))
        except httpx.HTTPError as err:
            results.append(err)

    before = server.state()["num_requests"]
    thread = threading.Thread(target=send)
    thread.start()
    deadline = time.monotonic() + 20
    while server.state()["num_requests"] == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return thread, results


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_finish(scripted_model: Model, number: int) -> None:
    """The running request gets its whole answer, new ones 503, and the exit is clean."""
    with run_server(scripted_model.path, FLAGS) as server:
        thread, results = in_background(server, long_body(scripted_model, 200))
        server.process.send_signal(number)
        time.sleep(0.2)
        late = httpx.post(f"{server.url}/generate", json=long_body(scripted_model, 1), timeout=60)
        assert late.status_code == 503
        assert late.json()["error"]["code"] == "overloaded"
        assert httpx.get(f"{server.url}/ready", timeout=60).status_code == 503
        thread.join(60)
        assert len(results[0].json()["output_ids"]) == 200
        assert server.process.wait(30) == 0


def test_requests_that_do_not_finish_in_time_are_aborted(scripted_model: Model) -> None:
    """After the bound they end with finish reason abort, and the server with 0."""
    with run_server(scripted_model.path, [*FLAGS, "--shutdown-timeout-s", "0.3"]) as server:
        thread, results = in_background(server, long_body(scripted_model, 8000))
        server.process.terminate()
        thread.join(60)
        assert results[0].json()["meta_info"]["finish_reason"]["type"] == "abort"
        assert server.process.wait(30) == 0


@pytest.mark.parametrize("name", ["worker", "detokenizer"])
def test_a_killed_child_fails_every_waiting_client(scripted_model: Model, name: str) -> None:
    """Clients get an error object, the server exits non-zero, nothing is left behind."""
    with run_server(scripted_model.path, FLAGS) as server:
        waiting = [in_background(server, long_body(scripted_model, 5000)) for _ in range(3)]
        server.child(name).kill()
        for thread, results in waiting:
            thread.join(60)
            assert results[0].status_code == 503
            assert results[0].json()["error"]["code"] == "engine_dead"
        assert server.process.wait(30) == 1


def test_a_crash_inside_a_stream_is_an_error_event(scripted_model: Model) -> None:
    """What was streamed stands, then comes an error event, and no [DONE]."""
    script = scripted_model.tokens.script("ab", "cd", "<|crash|>")
    with run_server(scripted_model.path, FLAGS) as server:
        body = {"input_ids": script, "stream": True}
        text = httpx.post(f"{server.url}/generate", json=body, timeout=60).text
        assert '"text":"ab' in text
        assert '"code":"engine_dead"' in text.strip().split("\n\n")[-1]
        assert server.process.wait(30) == 1


def test_children_end_when_the_parent_is_killed(scripted_model: Model, tmp_path: Path) -> None:
    """Without their parent they exit by themselves, and leave no files behind."""
    command = [sys.executable, "-m", "headwater", "serve", "--model", str(scripted_model.path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*command, *FLAGS, "--port", "0"], stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stderr is not None
        while b"ready at" not in process.stderr.readline():
            assert process.poll() is None
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 2
        process.kill()
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive
    assert not list(tmp_path.iterdir())


def run_cli(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end."""
    command = [sys.executable, "-m", "headwater", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--port", "99999"], "--port"),
        (["--port", "abc"], "--port"),
        (["--schedule-policy", "random"], "lpm"),
        (["--model", "/no/such/dir"], "no such file"),
        (["--page-size", "0"], "--page-size"),
        (["--allow-scripted-model", "--chat-template", "no-such"], "registered conversation"),
    ],
)
def test_wrong_settings_are_one_clear_line(
    scripted_model: Model, words: list[str], hint: str
) -> None:
    """Exit code 2 and a line that names the setting, never a traceback."""
    done = run_cli("serve", "--port", "0", "--model", str(scripted_model.path), *words)
    assert done.returncode == 2
    assert hint in done.stderr
    assert "WARNING" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_scripted_model_needs_its_flag(scripted_model: Model) -> None:
    """It is for tests: without the flag the server refuses it."""
    done = run_cli("serve", "--model", str(scripted_model.path), "--port", "0")
    assert done.returncode == 2
    assert "--allow-scripted-model" in done.stderr


def test_a_taken_port_is_reported_at_once(scripted_model: Model) -> None:
    """Before the model is loaded, with the address."""
    with run_server(scripted_model.path, FLAGS) as server:
        port = server.url.rsplit(":", 1)[1]
        done = run_cli("serve", "--model", str(scripted_model.path), *FLAGS, "--port", port)
        assert done.returncode == 2
        assert f":{port}" in done.stderr


def test_several_detokenizers_share_the_answers(scripted_model: Model) -> None:
    """Each answer is whole, whichever process it belongs to, and stops in text are found."""
    script = scripted_model.tokens.script("ab", "cd", "ab")
    with run_server(scripted_model.path, [*FLAGS, "--tokenizer-workers", "3"]) as server:
        assert len(server.children()) == 4
        for stop, text in (([], "abcdab"), (["cd"], "ab")):
            body = {"input_ids": [script] * 9, "sampling_params": {"stop": stop}}
            answers = httpx.post(f"{server.url}/generate", json=body, timeout=60).json()
            assert [answer["text"] for answer in answers] == [text] * 9
        assert server.wait_idle()["num_used_pages"] == 0
