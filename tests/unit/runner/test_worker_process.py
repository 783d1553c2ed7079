"""The worker as a process of its own, driven through its sockets: life, messages, death."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from headwater.config import config_from_values
from headwater.messages.codec import DETOKENIZER_CODEC, FRONT_END_CODEC, VERSION, WORKER_CODEC
from headwater.messages.params import SamplingParams
from headwater.messages.requests import (
    Abort,
    CheckIntegrity,
    FlushCache,
    Generate,
    GetState,
    LogprobSpec,
    Stop,
    ToWorker,
)
from headwater.messages.sockets import PullSocket, PushSocket
from headwater.messages.text import ControlReply, ModelCard, Ready, ToFrontEnd
from headwater.messages.tokens import Finish, ToDetokenizer, TokenOutput
from tests.kit.scripted import ScriptTokenizer, make_scripted_model
from tests.kit.tiny_models import make_tiny_model


class WorkerProcess:
    """A worker, with this test in the place of its parent, the detokenizer and the front end.

    Attributes:
        process: The worker.
        card: What it said of its model.
        outputs: All outputs of each request so far.
    """

    def __init__(self, model: Path, socket_dir: Path, settings: dict[str, Any]) -> None:
        config = config_from_values({"model": str(model), **settings}, environ={})
        (socket_dir / "config.json").write_text(config.to_json())
        self.process = start(socket_dir)
        assert self.process.stdout is not None
        # It writes nothing there: end-of-file is its death, so that no test waits for ever.
        fd = self.process.stdout.fileno()
        self._outputs: PullSocket[ToDetokenizer] = PullSocket(
            socket_dir, "detokenizer_0", DETOKENIZER_CODEC, fd
        )
        self._replies: PullSocket[ToFrontEnd] = PullSocket(
            socket_dir, "front_end", FRONT_END_CODEC, fd
        )
        self.inbox: PushSocket[ToWorker] = PushSocket(socket_dir, "worker", WORKER_CODEC)
        self.outputs: dict[int, list[TokenOutput]] = {}
        ready = self._reply()
        assert isinstance(ready, Ready)
        assert (ready.process, ready.version) == ("worker", VERSION)
        assert ready.card is not None
        self.card: ModelCard = ready.card

    def send(self, *messages: ToWorker) -> None:
        """Send messages in this order."""
        for message in messages:
            self.inbox.send(message)

    def ask(self, message: FlushCache | CheckIntegrity | GetState) -> ControlReply:
        """Send a control message and return its reply."""
        self.send(message)
        reply = self._reply()
        assert isinstance(reply, ControlReply)
        assert reply.seq == message.seq
        return reply

    def wait_tokens(self, uid: int, count: int = 1) -> None:
        """Receive until a request has so many tokens."""
        while sum(len(output.ids) for output in self.outputs.get(uid, [])) < count:
            self._receive()

    def finish(self, uid: int) -> Finish:
        """Receive until a request has ended; return why."""
        while True:
            outputs = self.outputs.get(uid)
            if outputs and outputs[-1].finish is not None:
                return outputs[-1].finish
            self._receive()

    def ids(self, uid: int) -> list[int]:
        """A request's ids so far."""
        return [token_id for output in self.outputs[uid] for token_id in output.ids]

    def end(self) -> tuple[int, str]:
        """Close what the parent holds; return the exit code and the log."""
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log.decode()

    def close(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.communicate()
        for socket in (self._outputs, self._replies, self.inbox):
            socket.close()

    def _reply(self) -> ToFrontEnd:
        while self._replies.wait():
            for message in self._replies.drain():
                return message
        raise AssertionError(f"the worker ended: {self.end()}")

    def _receive(self) -> None:
        assert self._outputs.wait(), f"the worker ended: {self.end()}"
        for batch in self._outputs.drain():
            for output in batch.outputs:
                earlier = self.outputs.setdefault(output.uid, [])
                assert not earlier or earlier[-1].finish is None, "an output after the last one"
                earlier.append(output)


def start(socket_dir: Path) -> "subprocess.Popen[bytes]":
    """Start a worker on a directory that holds its configuration."""
    command = [sys.executable, "-P", "-m", "headwater.worker", "--socket-dir", str(socket_dir)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


@contextmanager
def run_worker(model: Path, **settings: Any) -> Iterator[WorkerProcess]:
    """A worker for the length of a block."""
    # Not pytest's directory: a socket's path may have about 100 bytes.
    with tempfile.TemporaryDirectory(prefix="hw-") as socket_dir:
        worker = WorkerProcess(model, Path(socket_dir), settings)
        try:
            yield worker
        finally:
            worker.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a scripted model whose steps take 2 ms: a long answer can be interrupted."""
    return tmp_path_factory.mktemp("scripted")


@pytest.fixture(scope="module")
def tokens(folder: Path) -> ScriptTokenizer:
    """Its tokenizer."""
    return make_scripted_model(folder, ["ab"], step_delay_s=0.002)


@pytest.fixture(scope="module")
def worker(folder: Path, tokens: ScriptTokenizer) -> Iterator[WorkerProcess]:
    """One for all tests that leave it as it was."""
    with run_worker(folder, allow_scripted_model=True) as worker:
        yield worker
        assert worker.ask(CheckIntegrity(seq=1)).ok
        state = worker.ask(GetState(seq=2)).data
        assert (state["num_running"], state["num_waiting"], state["num_used_pages"]) == (0, 0, 0)
        assert worker.process.poll() is None


def long_request(uid: int) -> Generate:
    """It would run for 16 seconds."""
    params = SamplingParams(max_new_tokens=8000, ignore_eos=True, sampling_seed=0)
    return Generate(uid, f"r{uid}", [65], params)


def script_request(uid: int, prompt: list[int], **fields: Any) -> Generate:
    """It emits its script."""
    params = SamplingParams(max_new_tokens=50, sampling_seed=0, **fields)
    return Generate(uid, f"r{uid}", prompt, params)


def test_it_greets_with_its_model(worker: WorkerProcess, tokens: ScriptTokenizer) -> None:
    """The front end knows all limits from the card."""
    card = worker.card
    assert (card.architecture, card.model_type) == ("ScriptedForCausalLM", "scripted")
    assert card.eos_token_ids == [tokens.id("<|eos|>")]
    assert card.vocab_size == tokens.raw.get_vocab_size()
    assert card.context_length == 8192
    assert card.max_total_tokens % card.page_size == 0


def test_tokens_come_as_they_are_made(worker: WorkerProcess, tokens: ScriptTokenizer) -> None:
    """One output a step, opened by the first, ended by the last with the token that ended it."""
    script = tokens.script("ab", "c", "ab")
    worker.send(script_request(10, script))
    eos = tokens.id("<|eos|>")
    assert worker.finish(10) == Finish("stop", matched=eos)
    first, *rest = worker.outputs[10]
    assert worker.ids(10) == [tokens.id("ab"), tokens.id("c"), tokens.id("ab"), eos]
    assert [len(output.ids) for output in (first, *rest)] == [1, 1, 1, 1]
    assert first.opening is not None
    assert first.opening.prompt_tokens == len(script)
    assert all(output.opening is None for output in rest)
    assert rest[-1].trim_ids == 1


def test_an_abort_frees_everything(worker: WorkerProcess) -> None:
    """A running and a waiting request end at once with their message; others go on."""
    worker.send(long_request(20), long_request(21))
    worker.wait_tokens(20, 3)
    worker.send(long_request(22), Abort([20, 22, 999], "the client left"))
    assert worker.finish(20) == Finish("abort", message="the client left")
    assert worker.finish(22) == Finish("abort", message="the client left")
    assert worker.ask(GetState(seq=3)).data["num_running"] == 1
    worker.send(Abort([21]))
    assert worker.finish(21).type == "abort"
    assert worker.ask(GetState(seq=4)).data["num_used_pages"] == 0


def test_a_stop_found_in_the_text_ends_the_answer(worker: WorkerProcess) -> None:
    """The detokenizer's message; the worker confirms with an output without ids."""
    worker.send(long_request(30))
    worker.wait_tokens(30, 2)
    worker.send(Stop(30, 2))
    assert worker.finish(30) == Finish("stop")
    assert worker.outputs[30][-1].ids == []


def test_the_cache_is_flushed_when_idle_only(worker: WorkerProcess) -> None:
    """While a request runs, nothing is flushed and the reply says why."""
    worker.send(long_request(40))
    worker.wait_tokens(40)
    reply = worker.ask(FlushCache(seq=5))
    assert not reply.ok
    assert "nothing was flushed" in reply.message
    worker.send(Abort([40]))
    worker.finish(40)
    assert worker.ask(FlushCache(seq=6)).ok
    assert worker.ask(GetState(seq=7)).data["num_cached_pages"] == 0


def test_one_faulty_row_ends_alone(worker: WorkerProcess, tokens: ScriptTokenizer) -> None:
    """Its request ends with an error; one in the same steps gets its whole answer."""
    faulty = script_request(50, tokens.script("a", "b", "<|fault|>"))
    healthy = script_request(51, tokens.script("a", "b", "c", "d"))
    worker.send(faulty, healthy)
    finish = worker.finish(50)
    assert (finish.type, finish.code) == ("error", "internal_error")
    assert worker.ids(50) == [97, 98]
    assert worker.finish(51).type == "stop"
    assert worker.ids(51)[:-1] == [97, 98, 99, 100]


def test_a_prompt_that_cannot_fit_is_refused(worker: WorkerProcess) -> None:
    """The front end checks it before; the worker does not rely on that."""
    worker.send(Generate(60, "r60", [1] * 9000, SamplingParams(max_new_tokens=1)))
    assert worker.finish(60).code == "context_length_exceeded"


def test_signals_of_the_terminal_are_ignored(
    worker: WorkerProcess, tokens: ScriptTokenizer
) -> None:
    """^C reaches the whole group; only the parent decides when the worker ends."""
    worker.process.send_signal(signal.SIGINT)
    worker.process.send_signal(signal.SIGTERM)
    worker.send(script_request(70, tokens.script("a")))
    assert worker.finish(70).type == "stop"


def test_an_idle_worker_sleeps(worker: WorkerProcess) -> None:
    """It waits for messages without using the processor."""
    process = psutil.Process(worker.process.pid)
    worker.ask(GetState(seq=8))
    before = process.cpu_times()
    time.sleep(0.5)
    after = process.cpu_times()
    assert (after.user + after.system) - (before.user + before.system) < 0.25


@pytest.mark.parametrize("is_busy", [False, True])
def test_it_ends_with_its_parent(folder: Path, tokens: ScriptTokenizer, is_busy: bool) -> None:
    """Idle or in the middle of an answer, end-of-file on its input is a clean end."""
    with run_worker(folder, allow_scripted_model=True) as worker:
        if is_busy:
            worker.send(long_request(1))
            worker.wait_tokens(1)
        code, log = worker.end()
        assert code == 0
        assert "Traceback" not in log


def test_a_crash_has_its_own_exit_code(folder: Path, tokens: ScriptTokenizer) -> None:
    """Tests of the whole server kill the worker this way."""
    with run_worker(folder, allow_scripted_model=True) as worker:
        worker.send(script_request(1, tokens.script("a", "<|crash|>")))
        assert worker.process.wait(60) == 3


def test_our_own_errors_end_it_with_a_traceback(folder: Path, tokens: ScriptTokenizer) -> None:
    """Here a message that nobody may send: the exit code is 1 and the log says where."""
    with run_worker(folder, allow_scripted_model=True) as worker:
        worker.inbox.send(Ready(process="nobody", version=0))  # type: ignore[arg-type]  # on purpose
        assert worker.process.wait(60) == 1
        _, log = worker.end()
        assert "Traceback" in log
        assert "the worker failed" in log


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_model_it_cannot_serve_is_one_line(
    folder: Path, tokens: ScriptTokenizer, tmp_path: Path, is_broken: bool
) -> None:
    """Exit code 2; a scripted model needs its flag, a broken one is named."""
    if is_broken:
        (tmp_path / "config.json").write_text('{"architectures": ["ScriptedForCausalLM"]}')
        (tmp_path / "tokenizer.json").write_text("{}")
        settings: dict[str, Any] = {"model": str(tmp_path), "allow_scripted_model": True}
    else:
        settings = {"model": str(folder)}
    with tempfile.TemporaryDirectory(prefix="hw-") as name:
        socket_dir = Path(name)
        config = config_from_values(settings, environ={})
        (socket_dir / "config.json").write_text(config.to_json())
        process = start(socket_dir)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 2
    assert log.decode().count("\n") == 1
    assert ("--context-length" if is_broken else "--allow-scripted-model") in log.decode()


def test_a_real_model(tmp_path: Path) -> None:
    """Loaded, in a cache smaller than its context, warmed up, and answering with records."""
    make_tiny_model(tmp_path)
    with run_worker(tmp_path, max_total_tokens=100, num_threads=1) as worker:
        card = worker.card
        assert (card.architecture, card.dtype) == ("LlamaForCausalLM", "float32")
        assert (card.max_total_tokens, card.context_length) == (96, 96)
        assert 4 * card.num_parameters <= card.weight_bytes < 5 * card.num_parameters
        params = SamplingParams(max_new_tokens=6, temperature=0.0, ignore_eos=True, sampling_seed=0)
        for uid in (1, 2):
            prompt = [7, 8, 9, 10] * 10
            worker.send(Generate(uid, f"r{uid}", prompt, params, LogprobSpec(top_num=1)))
            assert worker.finish(uid) == Finish("length", length=6)
        assert worker.ids(1) == worker.ids(2)
        assert worker.outputs[2][0].cached_tokens == 32
        for output in worker.outputs[1]:
            for token_id, record in zip(output.ids, output.output_logprobs or [], strict=True):
                assert record.token[1] == token_id
                assert record.top == [record.token]
        assert worker.ask(CheckIntegrity(seq=1)).ok
