"""jinja2's sandbox as transformers' `apply_chat_template` sets it up; it knows no messages."""

import json
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

import jinja2
import jinja2.compiler
import jinja2.exceptions
import jinja2.ext
import jinja2.sandbox
import jinja2.utils

__all__ = ["TemplateRefusal", "make_environment", "time_limit"]

_end: ContextVar[float] = ContextVar("end", default=math.inf)


class TemplateRefusal(Exception):
    """The template called `raise_exception`."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Let templates that this thread renders compute for so long, and refuse them then."""
    token = _end.set(time.thread_time() + seconds)
    try:
        yield
    finally:
        _end.reset(token)


class _TimedCode(jinja2.compiler.CodeGenerator):
    """Code that looks at the clock at the head of every body, so that no loop runs for ever."""

    def blockvisit(self, nodes: Iterable[jinja2.nodes.Node], frame: jinja2.compiler.Frame) -> None:
        """Write a body."""
        self.writeline("environment.check_time()")
        super().blockvisit(nodes, frame)


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, bounded in time."""

    code_generator_class = _TimedCode

    def check_time(self) -> None:
        """Called by templates.

        Raises:
            TemplateRefusal: The time is over.
        """
        if time.thread_time() > _end.get():
            raise TemplateRefusal("it takes too long")


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's text; here it is just text."""

    tags = {"generation"}  # noqa: RUF012  # jinja2's own declaration is like that

    def parse(self, parser: Any) -> Any:
        """Make the block a call of its body, so that what it sets stays inside."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_show")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _show(self, caller: Any) -> Any:
        return caller()


class _Dict:
    """`dict` without the class's other attributes."""

    def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
        return dict(*args, **values)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        """One value for all keys."""
        return dict.fromkeys(keys, value)


class _Namespace(jinja2.utils.Namespace):
    """`namespace` whose attributes cannot reach into Python."""

    def __init__(*args: Any, **values: Any) -> None:  # `self` may be an attribute
        self, *rest = args
        jinja2.utils.Namespace.__init__(self)
        for name, value in dict(*rest, **values).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace's attribute cannot be {name!r}")
        super().__setitem__(name, value)


def _raise_exception(message: str) -> None:
    raise TemplateRefusal(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes <, > and &, which a prompt must not.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def make_environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """A fresh environment for one template."""
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _GenerationBlock],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["dict"] = _Dict()
    environment.globals["namespace"] = _Namespace
    return environment
