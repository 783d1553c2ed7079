"""`headwater chat`: a conversation in the terminal, in process or against a server."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx

from headwater.cli.generate import add_sampling_options, sampling_values
from headwater.cli.options import add_config_options, config_from_args
from headwater.errors import HeadwaterError, InternalError
from headwater.log import setup_logging

__all__ = ["add_options", "run"]

Messages = list[dict[str, str]]
Answerer = Callable[[Messages], Iterator[str]]

_HELP = "/exit ends, /clear forgets the conversation; ^C stops an answer"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where the model is, sampling, and the model's settings."""
    parser.add_argument(
        "--url",
        help="talk to a server instead of loading a model here; its key is the first of "
        "HEADWATER_API_KEY",
    )
    parser.add_argument("--system", help="a system message to begin with")
    add_sampling_options(parser)
    add_config_options(parser, groups=("model", "scheduler", "logging"))


def run(args: argparse.Namespace) -> int:
    """Talk until the user leaves."""
    values = sampling_values(args)
    if args.url:
        return _talk(lambda messages: _from_server(args.url, messages, values), args.system)
    config = config_from_args(args, log_level="warning")
    setup_logging(config.logging.log_level, process="engine")
    from headwater.engine import Engine

    with Engine(config) as engine:

        def answer(messages: Messages) -> Iterator[str]:
            shown = 0
            with closing(engine.generate(None, values, messages=messages, stream=True)) as results:
                for result in results:
                    yield result["text"][shown:]
                    shown = len(result["text"])

        return _talk(answer, args.system)


def _talk(answer: Answerer, system: str | None) -> int:
    """Read a line, print the answer as it comes, remember both."""
    begin: Messages = [{"role": "system", "content": system}] if system else []
    messages = list(begin)
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        print(_HELP)
    code = 0
    while True:
        line = _read_line("> " if is_terminal else "")
        if line is None or line.strip() == "/exit":
            return code
        if line.strip() == "/clear":
            messages = list(begin)
            continue
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line})
        text = _print_answer(answer, messages)
        if text is None:
            messages.pop()
            code = 0 if is_terminal else 1  # a script must learn of it; a user has seen it
        else:
            messages.append({"role": "assistant", "content": text})


def _read_line(prompt: str) -> str | None:
    try:
        return input(prompt)
    except (EOFError, KeyboardInterrupt):
        return None


def _print_answer(answer: Answerer, messages: Messages) -> str | None:
    """The answer's text, as far as it came; None when it failed."""
    pieces: list[str] = []
    try:
        for piece in answer(messages):
            print(piece, end="", flush=True)
            pieces.append(piece)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    except HeadwaterError as err:
        print(f"headwater: {err.message}", file=sys.stderr)
        return None
    print()
    return "".join(pieces)


def _from_server(url: str, messages: Messages, values: dict[str, Any]) -> Iterator[str]:
    names = {"max_new_tokens": "max_tokens", "sampling_seed": "seed"}
    body = {names.get(name, name): value for name, value in values.items()}
    body |= {"messages": messages, "stream": True}
    # Clients of OpenAI's API are given the address with /v1: both forms are taken.
    base = url.rstrip("/").removesuffix("/v1")
    key = os.environ.get("HEADWATER_API_KEY", "").split(",")[0].strip()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with (
            httpx.Client(timeout=None, headers=headers) as client,
            client.stream("POST", f"{base}/v1/chat/completions", json=body) as response,
        ):
            if response.status_code != 200:
                response.read()
                raise InternalError(
                    f"the server answers {response.status_code}: {_reason(response)}"
                )
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    yield _text_of(json.loads(line[6:]))
    except httpx.HTTPError as err:
        raise InternalError(f"cannot talk to {url}: {err}") from None


def _reason(response: httpx.Response) -> str:
    """What the error object says, or the whole body of a server that speaks otherwise."""
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text


def _text_of(chunk: dict[str, Any]) -> str:
    if "error" in chunk:
        raise InternalError(chunk["error"]["message"])
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
