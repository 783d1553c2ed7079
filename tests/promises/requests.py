"""Native requests against a running server."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import httpx

from tests.kit.server import Server

__all__ = ["alone", "flush", "random_requests", "together"]

Body = dict[str, Any]


def random_requests(count: int, *, seed: int, max_prompt: int = 120) -> list[Body]:
    """Greedy, seeded, penalized and log-probability requests of many lengths, mixed."""
    rng = random.Random(seed)
    bodies = []
    for i in range(count):
        params: Body = {"max_new_tokens": rng.randint(4, 100), "ignore_eos": True}
        if i % 3 == 0:
            params["temperature"] = 0
        else:
            params |= {"temperature": 0.9, "top_p": 0.95, "sampling_seed": rng.randrange(1 << 40)}
        if i % 4 == 1:
            params |= {"frequency_penalty": 1.0, "repetition_penalty": 1.1}
        length = rng.randint(1, max_prompt)
        ids = [rng.randrange(97, 123) for _ in range(length)]
        body: Body = {"input_ids": ids, "sampling_params": params}
        if i % 5 == 2:
            body |= {"return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 0}
        bodies.append(body)
    return bodies


def flush(server: Server) -> None:
    """Empty the prefix cache of an idle server."""
    server.wait_idle()
    assert httpx.post(f"{server.url}/flush_cache", timeout=60).status_code == 200


def alone(server: Server, bodies: Sequence[Body], *, cold: bool = True) -> list[Body]:
    """Send the requests one after the other, each to an empty cache unless told otherwise."""
    answers = []
    with httpx.Client(timeout=120) as client:
        for body in bodies:
            if cold:
                flush(server)
            response = client.post(f"{server.url}/generate", json=body)
            assert response.status_code == 200, response.text
            answers.append(response.json())
    return answers


def together(server: Server, bodies: Sequence[Body]) -> list[Body]:
    """Send all requests at once."""

    async def send() -> list[Body]:
        limits = httpx.Limits(max_connections=len(bodies))
        async with httpx.AsyncClient(timeout=300, limits=limits) as client:
            posts = (client.post(f"{server.url}/generate", json=body) for body in bodies)
            responses = await asyncio.gather(*posts)
        for response in responses:
            assert response.status_code == 200, response.text
        return [response.json() for response in responses]

    return asyncio.run(send())
