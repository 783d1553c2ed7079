"""Every accepted request ends exactly once, and a client that goes away frees what it held."""

import asyncio
import contextlib
import random
from typing import Any

import httpx

from tests.kit.server import Server
from tests.promises.requests import flush


def endless(**fields: Any) -> dict[str, Any]:
    """A request that would run for long."""
    params = {"max_new_tokens": 4000, "ignore_eos": True, "temperature": 0}
    return {"text": "never ending", "sampling_params": params, **fields}


async def read_some(client: httpx.AsyncClient, url: str, body: dict[str, Any], count: int) -> None:
    """Read a few events of a stream, then hang up."""
    async with client.stream("POST", f"{url}/generate", json={**body, "stream": True}) as response:
        assert response.status_code == 200
        lines = response.aiter_lines()
        for _ in range(count):
            await anext(lines)
        await lines.aclose()  # type: ignore[attr-defined]  # it is an async generator


def test_b105_a_client_that_hangs_up_frees_its_slot(roomy: Server) -> None:
    """Streamed and not, the request ends soon after its client has gone."""

    async def hang_up() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            await read_some(client, roomy.url, endless(), 3)
        async with httpx.AsyncClient(timeout=0.3) as client:
            with contextlib.suppress(httpx.TimeoutException):
                await client.post(f"{roomy.url}/generate", json=endless())

    asyncio.run(hang_up())
    assert roomy.wait_idle(10)["num_used_pages"] == 0


def test_b107_all_answers_of_n_end_with_their_client(roomy: Server) -> None:
    """A stream of four answers is cut, many times over; nothing is left."""
    body = endless()
    body["sampling_params"]["n"] = 4

    async def hang_up() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            for _ in range(25):
                await asyncio.gather(*(read_some(client, roomy.url, body, 1 + k) for k in range(4)))

    asyncio.run(hang_up())
    assert roomy.wait_idle(20)["num_used_pages"] == 0


def test_500_random_events_leave_nothing(roomy: Server) -> None:
    """Submits, aborts by name and disconnects in random order; every request ends."""
    rng = random.Random(7)
    ended: list[str] = []

    async def one(client: httpx.AsyncClient, number: int) -> None:
        rid = f"random-{number}"
        body = endless(rid=rid)
        body["sampling_params"]["max_new_tokens"] = rng.randint(1, 120)
        body["text"] = "x" * rng.randint(1, 150)
        kind = rng.choice(["finish", "abort", "hang up", "late abort"])
        await asyncio.sleep(rng.random())
        if kind == "hang up":
            body["sampling_params"]["max_new_tokens"] = 120
            await read_some(client, roomy.url, body, rng.randint(1, 3))
        else:
            answer = asyncio.create_task(client.post(f"{roomy.url}/generate", json=body))
            if kind != "finish":
                await asyncio.sleep(rng.random() * (0.05 if kind == "abort" else 0.6))
                await client.post(f"{roomy.url}/abort_request", json={"rid": rid})
            reason = (await answer).json()["meta_info"]["finish_reason"]["type"]
            assert reason in ("length", "abort")
        ended.append(rid)

    async def storm() -> None:
        limits = httpx.Limits(max_connections=40)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:
            for start in range(0, 300, 50):
                await asyncio.gather(*(one(client, start + k) for k in range(50)))

    asyncio.run(storm())
    assert len(ended) == 300
    assert roomy.wait_idle(20)["num_used_pages"] == 0
    flush(roomy)
    assert roomy.state()["num_free_pages"] == roomy.state()["num_pages"]


def test_b117_one_name_for_two_live_requests(roomy: Server) -> None:
    """The second is refused while the first lives, and the name is free again afterwards."""

    async def clash() -> list[int]:
        async with httpx.AsyncClient(timeout=60) as client:
            url = f"{roomy.url}/generate"
            first = asyncio.create_task(client.post(url, json=endless(rid="same")))
            await asyncio.sleep(0.2)
            second = await client.post(url, json=endless(rid="same"))
            await client.post(f"{roomy.url}/abort_request", json={"rid": "same"})
            assert (await first).json()["meta_info"]["finish_reason"]["type"] == "abort"
            body = {"text": "a", "rid": "same", "sampling_params": {"max_new_tokens": 1}}
            third = await client.post(url, json=body)
            return [second.status_code, third.status_code]

    assert asyncio.run(clash()) == [409, 200]


def test_b121_a_batch_is_admitted_whole_or_not_at_all(roomy: Server) -> None:
    """One prompt that is too long refuses the batch, and nothing of it runs."""
    body = {"prompt": ["ok", "ok2", "x" * 100_000, "ok3"], "max_tokens": 4}
    response = httpx.post(f"{roomy.url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert roomy.state()["num_running"] == 0
    response = httpx.post(f"{roomy.url}/v1/completions", json={"prompt": ["z"]}, timeout=60)
    assert len(response.json()["choices"]) == 1


def test_b111_empty_prompts_are_refused(roomy: Server) -> None:
    """A prompt without a token is a 400, and the engine lives."""
    prompts: list[object] = ["", [""], [], [[]]]
    for prompt in prompts:
        response = httpx.post(f"{roomy.url}/v1/completions", json={"prompt": prompt}, timeout=60)
        assert response.status_code == 400, prompt
        assert response.json()["error"]["param"].startswith("prompt")
    assert httpx.get(f"{roomy.url}/health_generate", timeout=60).status_code == 200


def test_b113_stop_ids_outside_the_vocabulary_are_refused(roomy: Server) -> None:
    """They never reach the logits of a neighbour."""
    for fields in ({"stop_token_ids": [10**6], "min_new_tokens": 4}, {"min_new_tokens": 9999}):
        body = {"text": "a", "sampling_params": fields}
        response = httpx.post(f"{roomy.url}/generate", json=body, timeout=60)
        assert response.status_code == 400
        assert response.json()["error"]["param"].startswith("sampling_params.")
