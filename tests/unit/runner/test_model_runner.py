"""A tiny real model behind the real scheduler, against transformers."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from headwater.kernels import KVPool, PortableOps
from headwater.messages.params import SamplingParams
from headwater.messages.requests import Generate, LogprobSpec
from headwater.messages.tokens import PositionLogprobs, TokenOutput
from headwater.models.decoder import Decoder
from headwater.models.loader import load_model
from headwater.sources.info import read_model_info
from headwater.sources.resolve import ModelFiles
from headwater.worker.runner.runner import ModelRunner
from headwater.worker.scheduler.scheduler import Scheduler, SchedulerOptions
from tests.kit.tiny_models import make_tiny_model

PAGE = 4
NEW_TOKENS = 20
VOCAB = 256  # ids of the bytes; prompts have no special tokens


class Model:
    """One model, here and in transformers."""

    def __init__(self, folder: Path, family: str = "llama") -> None:
        from transformers import AutoModelForCausalLM

        make_tiny_model(folder, family=family)
        self.theirs: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.theirs.generation_config.eos_token_id = None  # answers of one length
        files = ModelFiles(folder, "hf", str(folder))
        self.ours: Decoder = load_model(
            files,
            read_model_info(files),
            dtype=torch.float32,
            device="cpu",
            ops=PortableOps(),
            context_length=256,
        )

    def generate(self, prompt: Sequence[int]) -> list[int]:
        """Greedy answer of transformers."""
        found = self.theirs.generate(
            torch.tensor([list(prompt)]),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            pad_token_id=0,
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        )
        ids: list[int] = found[0, len(prompt) :].tolist()
        return ids

    def logprobs(self, ids: Sequence[int]) -> torch.Tensor:
        """[num_tokens, vocab]: at p the distribution of the token after p."""
        with torch.no_grad():
            logits: torch.Tensor = self.theirs(torch.tensor([list(ids)])).logits[0]
        return torch.log_softmax(logits, dim=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Shared: no test changes it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Model(tmp_path_factory.mktemp("tiny"))
    torch.set_num_threads(threads)


class Engine:
    """Scheduler, runner and pool; collects what each request gets."""

    def __init__(self, decoder: Decoder, **settings: Any) -> None:
        values = {
            "num_pages": 100,
            "page_size": PAGE,
            "context_length": 256,
            "chunked_prefill_size": 64,
            **settings,
        }
        options = SchedulerOptions(**values)
        pool = KVPool(
            num_layers=decoder.config.num_layers,
            num_pages=options.num_pages,
            page_size=PAGE,
            num_kv_heads=decoder.config.num_kv_heads,
            head_dim=decoder.config.head_dim,
            dtype=torch.float32,
            device="cpu",
        )
        self.pool = pool
        self.scheduler = Scheduler(options)
        self.runner = ModelRunner(decoder, pool)
        self.outputs: dict[int, list[TokenOutput]] = {}

    def run(self, requests: Sequence[Generate]) -> None:
        """Run requests that come all at once, to the end."""
        for request in requests:
            assert not self.scheduler.add(request)
        while (plan := self.scheduler.plan()) is not None:
            for output in self.scheduler.commit(plan, self.runner.run(plan)):
                self.outputs.setdefault(output.uid, []).append(output)
                if output.finish is not None:
                    self.runner.forget([output.uid])
            self.scheduler.check_integrity()

    def ids(self, uid: int) -> list[int]:
        """A request's answer."""
        return [token_id for output in self.outputs[uid] for token_id in output.ids]

    def finish_type(self, uid: int) -> str:
        """How a request ended."""
        finish = self.outputs[uid][-1].finish
        assert finish is not None
        return finish.type


def ask(uid: int, prompt: Sequence[int], **fields: Any) -> Generate:
    """A greedy request unless told otherwise."""
    logprobs = fields.pop("logprobs", None)
    values = {
        "temperature": 0.0,
        "max_new_tokens": NEW_TOKENS,
        "ignore_eos": True,
        "sampling_seed": uid,
        **fields,
    }
    return Generate(uid, f"r{uid}", list(prompt), SamplingParams(**values), logprobs)


def make_prompts() -> list[list[int]]:
    """Six prompts; two share a beginning."""
    generator = torch.Generator().manual_seed(3)
    lengths = (1, 4, 7, 13, 26, 40)
    prompts: list[list[int]] = [
        torch.randint(0, VOCAB, (n,), generator=generator).tolist() for n in lengths
    ]
    prompts[4][:12] = prompts[3][:12]
    return prompts


PROMPTS = make_prompts()


@pytest.fixture(scope="module")
def expected(model: Model) -> list[list[int]]:
    """Answers of transformers."""
    return [model.generate(prompt) for prompt in PROMPTS]


def test_greedy_answers_alone(model: Model, expected: list[list[int]]) -> None:
    """One request after the other equals transformers' generate."""
    engine = Engine(model.ours)
    for uid, prompt in enumerate(PROMPTS):
        engine.run([ask(uid, prompt)])
    assert [engine.ids(uid) for uid in range(len(PROMPTS))] == expected


@pytest.mark.parametrize(
    "settings",
    [{}, {"chunked_prefill_size": 5}, {"disable_radix_cache": True}, {"max_running_requests": 2}],
    ids=str,
)
def test_greedy_answers_together(
    model: Model, expected: list[list[int]], settings: dict[str, Any]
) -> None:
    """All at once, in small chunks, without the cache or two at a time: the same answers."""
    engine = Engine(model.ours, **settings)
    engine.run([ask(uid, prompt) for uid, prompt in enumerate(PROMPTS)])
    assert [engine.ids(uid) for uid in range(len(PROMPTS))] == expected
    again = [ask(10 + uid, prompt) for uid, prompt in enumerate(PROMPTS)]
    engine.run(again)  # now the cache has all prompts
    assert [engine.ids(10 + uid) for uid in range(len(PROMPTS))] == expected


@pytest.mark.parametrize("chunk", [5, 64])
def test_greedy_answers_with_retraction(
    model: Model, expected: list[list[int]], chunk: int
) -> None:
    """In a pool that is too small for all, answers are interrupted, and are the same."""
    engine = Engine(model.ours, num_pages=18, chunked_prefill_size=chunk)
    engine.run([ask(uid, prompt) for uid, prompt in enumerate(PROMPTS)])
    assert engine.scheduler.state()["num_retractions"] > 0
    assert [engine.ids(uid) for uid in range(len(PROMPTS))] == expected


SAMPLED: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.5, "top_k": 5, "frequency_penalty": 1.0},
    {"temperature": 1.0, "min_p": 0.1, "repetition_penalty": 1.2},
    {"temperature": 0.0, "presence_penalty": 1.5},
    {"temperature": 1.0, "logit_bias": {7: 5.0}, "min_new_tokens": 5, "ignore_eos": False},
]


def test_sampled_answers_do_not_depend_on_company(model: Model) -> None:
    """P3 with seeds, penalties and retraction: alone, together and interrupted."""
    requests = [
        ask(uid, prompt, **params)
        for uid, (prompt, params) in enumerate(zip(PROMPTS, SAMPLED, strict=True))
    ]
    alone = Engine(model.ours)
    for request in requests:
        alone.run([request])
    for settings in ({}, {"num_pages": 18, "chunked_prefill_size": 5}):
        engine = Engine(model.ours, **settings)
        engine.run(requests)
        for request in requests:
            assert engine.ids(request.uid) == alone.ids(request.uid)


def check_position(found: PositionLogprobs, row: torch.Tensor, token_id: int) -> None:
    """One report against a row of log-probabilities."""
    logprob, reported = found.token
    assert reported == token_id
    assert logprob == pytest.approx(row[token_id].item(), abs=1e-4)
    assert found.top is not None
    assert found.picked is not None
    values, ids = torch.topk(row, 3)
    assert [i for _, i in found.top] == ids.tolist()
    assert [x for x, _ in found.top] == pytest.approx(values.tolist(), abs=1e-4)
    assert [i for _, i in found.picked] == [9, 2]
    assert [x for x, _ in found.picked] == pytest.approx([row[9].item(), row[2].item()], abs=1e-4)


@pytest.mark.parametrize("chunk", [5, 64])
@pytest.mark.parametrize("start", [0, 1, 9])
def test_logprobs_of_prompt_and_answer(model: Model, chunk: int, start: int) -> None:
    """Against transformers' log_softmax, in company, in chunks, and from the middle."""
    spec = LogprobSpec(start_len=start, top_num=3, token_ids=[9, 2])
    engine = Engine(model.ours, chunked_prefill_size=chunk)
    requests = [ask(uid, prompt) for uid, prompt in enumerate(PROMPTS)]
    requests[4] = ask(4, PROMPTS[4], logprobs=spec)
    engine.run(requests)
    ids = PROMPTS[4] + engine.ids(4)
    rows = model.logprobs(ids)
    inputs = engine.outputs[4][0].input_logprobs
    assert inputs is not None
    assert len(inputs.positions) == len(PROMPTS[4]) - start
    for position, found in enumerate(inputs.positions, start):
        if position == 0:  # nothing stands before it
            assert found == PositionLogprobs((None, ids[0]))
        else:
            check_position(found, rows[position - 1], ids[position])
    outputs = [p for output in engine.outputs[4] for p in output.output_logprobs or []]
    assert len(outputs) == NEW_TOKENS
    for position, found in enumerate(outputs, len(PROMPTS[4])):
        check_position(found, rows[position - 1], ids[position])


def test_prompt_logprobs_without_an_answer(model: Model) -> None:
    """`max_new_tokens` 0 scores the prompt and makes no token."""
    spec = LogprobSpec(start_len=1, top_num=3, token_ids=[9, 2])
    engine = Engine(model.ours, chunked_prefill_size=5)
    engine.run([ask(1, PROMPTS[5], max_new_tokens=0, logprobs=spec)])
    (output,) = engine.outputs[1]
    assert output.ids == []
    assert output.input_logprobs is not None
    rows = model.logprobs(PROMPTS[5])
    for position, found in enumerate(output.input_logprobs.positions, 1):
        check_position(found, rows[position - 1], PROMPTS[5][position])
    assert engine.finish_type(1) == "length"


@pytest.fixture
def broken(tmp_path: Path) -> Model:
    """A model whose token 200 has an embedding that is not a number."""
    made = Model(tmp_path)
    embedding = next(made.ours.weights())
    embedding[200] = float("nan")
    return made


def test_a_row_that_is_not_finite_ends_alone(broken: Model, expected: list[list[int]]) -> None:
    """Its request ends with an error; those in the same step do not notice."""
    engine = Engine(broken.ours)
    healthy = [i for i, prompt in enumerate(PROMPTS) if 200 not in prompt + expected[i]]
    assert len(healthy) > 2
    requests = [ask(uid, PROMPTS[uid]) for uid in healthy]
    requests.insert(2, ask(99, [*PROMPTS[2], 200]))
    engine.run(requests)
    assert engine.finish_type(99) == "error"
    assert engine.ids(99) == []
    for uid in healthy:
        assert engine.ids(uid) == expected[uid]


def test_pages_of_a_failed_request_harm_nobody(broken: Model, expected: list[list[int]]) -> None:
    """Numbers that are not finite stay behind in its pages, the pool's first among them."""
    engine = Engine(broken.ours)
    engine.run([ask(99, [200, *PROMPTS[5] * 4])])
    assert engine.finish_type(99) == "error"
    assert not torch.isfinite(engine.pool.k[:, 0]).all()
    # Rows of nearly one length are padded to one length.
    prompts = [PROMPTS[5][:5], PROMPTS[4][:6]]
    engine.run([ask(uid, prompt) for uid, prompt in enumerate(prompts)])
    for uid, prompt in enumerate(prompts):
        assert engine.ids(uid) == broken.generate(prompt)
