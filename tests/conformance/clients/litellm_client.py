"""What an application does with litellm, against the server at BASE_URL."""

import asyncio
import os
import sys

import litellm

WHERE = {"api_base": os.environ["BASE_URL"], "api_key": "none", "num_retries": 0}
CHAT = {"model": "openai/default", **WHERE}


def asked(text: str) -> dict[str, list[dict[str, str]]]:
    """One user's turn; the scripted model repeats it."""
    return {"messages": [{"role": "user", "content": text}]}


def main() -> None:
    """Complete, stream, wait, score, fail."""
    answer = litellm.completion(**asked("Hi 山"), **CHAT)
    assert answer.choices[0].message.content == "Hi 山", answer

    stream = litellm.completion(**asked("done"), stream=True, **CHAT)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == "done", text

    later = asyncio.run(litellm.acompletion(**asked("One two"), **CHAT))
    assert later.choices[0].message.content == "One two", later

    plain = litellm.text_completion(
        model="text-completion-openai/default", prompt="a", max_tokens=3, seed=1, **WHERE
    )
    assert plain.usage.completion_tokens == 3, plain

    try:
        litellm.completion(model="openai/gpt-x", **asked("a"), **WHERE)
    except litellm.exceptions.NotFoundError:
        sys.stdout.write("all right\n")
    else:
        raise AssertionError("an unknown model answered")


main()
