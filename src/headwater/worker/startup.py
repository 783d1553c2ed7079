"""From the configuration to a worker that is ready; the only place that puts its parts together."""

import gc
import logging
import time
from pathlib import Path
from typing import NamedTuple

from headwater.config import Config
from headwater.errors import ConfigError
from headwater.messages.codec import DETOKENIZER_CODEC, FRONT_END_CODEC, VERSION, WORKER_CODEC
from headwater.messages.params import SamplingParams
from headwater.messages.sockets import PullSocket, PushSocket, detokenizer_name
from headwater.messages.text import ModelCard, Ready
from headwater.sources.info import ModelInfo, read_model_info
from headwater.sources.resolve import ModelFiles, resolve_model
from headwater.worker.loop import Runner, Worker
from headwater.worker.runner.scripted import Script, ScriptedRunner
from headwater.worker.scheduler.options import SchedulerOptions
from headwater.worker.scheduler.plan import Row, StepPlan
from headwater.worker.scheduler.scheduler import Scheduler

__all__ = ["start_worker"]

log = logging.getLogger("headwater.worker")

SCRIPTED = "ScriptedForCausalLM"
_PARENT_FD = 0  # standard input; the parent holds the other end


def start_worker(config: Config, socket_dir: Path) -> Worker:
    """Load the model, bind the sockets, greet the front end.

    Args:
        config: All settings; the model is a local path.
        socket_dir: Private directory of the sockets.

    Raises:
        ConfigError: A setting does not fit the model.
        ModelLoadError: The model cannot be loaded.
    """
    started = time.monotonic()
    files = resolve_model(config.model.model, Path(config.model.cache_dir))
    info = read_model_info(files)
    context_length = _context_length(config, info)
    if info.architecture == SCRIPTED:
        served = _scripted(config, info, context_length)
    else:
        served = _real(config, files, info, context_length)
    max_total_tokens = served.num_pages * config.scheduler.page_size
    context_length = _fit_context(context_length, max_total_tokens)
    scheduler = Scheduler(_options(config, info, served.num_pages, context_length))
    inbox = PullSocket(socket_dir, "worker", WORKER_CODEC, _PARENT_FD)
    detokenizers = [
        PushSocket(socket_dir, detokenizer_name(number), DETOKENIZER_CODEC)
        for number in range(config.stream.tokenizer_workers)
    ]
    front_end = PushSocket(socket_dir, "front_end", FRONT_END_CODEC)
    card = ModelCard(
        architecture=info.architecture,
        model_type=str(info.config.get("model_type", "")),
        vocab_size=info.config["vocab_size"],
        context_length=context_length,
        eos_token_ids=info.eos_token_ids,
        dtype=served.dtype,
        num_parameters=served.num_parameters,
        weight_bytes=served.weight_bytes,
        max_total_tokens=max_total_tokens,
        page_size=config.scheduler.page_size,
        load_time_s=time.monotonic() - started,
    )
    log.info(
        "ready: %s, context %d tokens, KV cache %d tokens, %.1f s",
        info.architecture,
        context_length,
        max_total_tokens,
        card.load_time_s,
    )
    # What is alive now stays: the collector need not walk over it again in the middle of a step.
    gc.collect()
    gc.freeze()
    front_end.send(Ready(process="worker", version=VERSION, card=card))
    return Worker(scheduler, served.runner, inbox, detokenizers, front_end)


def _context_length(config: Config, info: ModelInfo) -> int:
    own, asked = info.context_length, config.model.context_length
    if own is None and asked is None:
        raise ConfigError(
            "the model does not say its context; set --context-length", param="context_length"
        )
    if asked is not None and own is not None and asked > own:
        log.warning("--context-length %d is more than the model's own %d", asked, own)
    length = asked if asked is not None else own
    assert length is not None
    return length


def _fit_context(context_length: int, max_total_tokens: int) -> int:
    """No request can be longer than the whole cache."""
    if context_length > max_total_tokens:
        log.warning(
            "the KV cache holds %d tokens, so the context is that and not %d; "
            "a larger --max-total-tokens, if the memory is there, gives more",
            max_total_tokens,
            context_length,
        )
    return min(context_length, max_total_tokens)


def _options(
    config: Config, info: ModelInfo, num_pages: int, context_length: int
) -> SchedulerOptions:
    scheduler = config.scheduler
    return SchedulerOptions(
        num_pages=num_pages,
        page_size=scheduler.page_size,
        context_length=context_length,
        eos_token_ids=frozenset(info.eos_token_ids),
        max_running_requests=scheduler.max_running_requests,
        # The front end bounds the queue before anything is sent; a second bound here would refuse
        # half of a batch.
        max_queued_requests=None,
        chunked_prefill_size=scheduler.chunked_prefill_size,
        schedule_policy=scheduler.schedule_policy,
        disable_radix_cache=scheduler.disable_radix_cache,
        stream_interval=config.stream.stream_interval,
    )


class _Served(NamedTuple):
    """A runner, and what the model card says of it."""

    runner: Runner
    num_pages: int
    dtype: str
    num_parameters: int
    weight_bytes: int


def _scripted(config: Config, info: ModelInfo, context_length: int) -> _Served:
    if not config.model.allow_scripted_model:
        raise ConfigError(
            "this is a scripted model, for tests only; it needs --allow-scripted-model",
            param="allow_scripted_model",
        )
    tokens = config.scheduler.max_total_tokens or context_length * 64
    pages = max(tokens // config.scheduler.page_size, 1)
    return _Served(ScriptedRunner(Script.from_config(info.config)), pages, "none", 0, 0)


def _real(config: Config, files: ModelFiles, info: ModelInfo, context_length: int) -> _Served:
    # Imported here: a scripted model must not wait for torch.
    from headwater.worker.runner.load import load_step_model, make_pool
    from headwater.worker.runner.runner import ModelRunner

    model = load_step_model(config, files, info, context_length)
    pool = make_pool(config, model, context_length)
    runner = ModelRunner(model, pool)
    _warm_up(runner)
    return _Served(
        runner,
        pool.num_pages,
        model.precision,
        model.num_parameters,
        model.weight_bytes,
    )


def _warm_up(runner: Runner) -> None:
    """Run one token, so that the first request does not pay for what the libraries put off.

    It writes to the first page, which belongs to nobody yet.
    """
    row = Row(
        uid=0,
        token_ids=[0],
        start=0,
        end=1,
        pages=[0],
        prompt_len=1,
        params=SamplingParams(temperature=0.0),
        seed=0,
        samples=True,
        eos_ids=frozenset(),
        logprobs=None,
        input_from=None,
    )
    runner.run(StepPlan([row]))
    runner.forget([0])
