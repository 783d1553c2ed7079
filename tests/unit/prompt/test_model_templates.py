"""Models' own templates: the text is transformers', for every kind of conversation."""

import json
import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
import transformers

from headwater.errors import InvalidRequest
from headwater.prompt.chat import ChatTemplate, normalize_messages
from tests.kit.scripted import byte_level_tokenizer

FOLDER = Path(__file__).parents[2] / "data" / "chat_templates"
# Goes through parts and takes nothing else, as templates of models with images do.
PARTS_ONLY = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% else %}<image>{% endif %}{% endfor %}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Numbers, options of tojson, namespaces, dict, loop controls.
CORNERS = (
    "{%- set ns = namespace(n=0, seen=dict(a=1)) -%}{% for m in messages %}"
    "{%- set ns.n = ns.n + 1 %}\n    {% if m.role == 'tool' %}{% continue %}{% endif %}\n"
    "{{ ns.n }} {{ m | tojson }} {{ m | tojson(indent=2) }} {{ m | tojson(ensure_ascii=True) }}"
    "{{ m | tojson(separators=(',', ':'), sort_keys=True) }} {{ m | tojson(True, 1) }}"
    "{% generation %}{{ m.content }}{% set ns.n = ns.n + 10 %}{% endgeneration %}"
    "{{ (tools or []) | length }} {{ (documents or []) | tojson }} {{ dict.fromkeys(['x'], 2) }}\n"
    "{% if ns.n > 40 %}{% break %}{% endif %}{% endfor %}{{ strftime_now('%Y') }}{{ extra }}"
)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

USER = {"role": "user", "content": "Hi"}
SYSTEM = {"role": "system", "content": "Be brief."}
BOT = {"role": "assistant", "content": "Hello."}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "weather", "arguments": {"city": "Bérn", "days": 2, "dry": True}},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": '{"t": 21}'}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather <now> & later",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where", "enum": ["Bérn", "Ulm"]},
                    "days": {"type": "integer", "description": "How many"},
                },
                "required": ["city"],
            },
        },
    }
]


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


CHATS: dict[str, list[dict[str, Any]]] = {
    "one": [USER],
    "system": [SYSTEM, USER],
    "two turns": [USER, BOT, {"role": "user", "content": "More"}],
    "system and turns": [SYSTEM, USER, BOT, USER, BOT, {"role": "user", "content": "?"}],
    "ends with the assistant": [USER, BOT],
    "unicode": [{"role": "user", "content": "日本語 🥨 مرحبا \u200d né"}],
    "code": [{"role": "user", "content": "```python\nprint('{{ x }}', {% if %})\n```"}],
    "empty": [{"role": "user", "content": ""}, BOT, USER],
    "empty answer": [USER, {"role": "assistant", "content": ""}, USER],
    "spaces": [{"role": "user", "content": "  a \n\n\tb  "}, {**BOT, "content": " x \n"}, USER],
    "line ends": [{"role": "user", "content": "a\r\nb\n"}],
    "html": [{"role": "user", "content": "<b>&amp;</b> 'q' \"d\" \\n"}],
    "names": [{**USER, "name": "Ann"}, {**BOT, "name": None}, USER],
    "starts with the assistant": [BOT, USER],
    "user twice": [USER, USER],
    "late system": [USER, SYSTEM, USER],
    "tool": [USER, CALL, RESULT],
    "tool and on": [SYSTEM, USER, CALL, RESULT, BOT, USER],
    "two tools": [USER, CALL, RESULT, {**RESULT, "content": "x"}, BOT],
    "reasoning": [USER, {**BOT, "reasoning_content": "Let me see."}, USER],
    "reasoning, other name": [USER, {**BOT, "reasoning": "Let me see."}],
    "thoughts in the text": [USER, {**BOT, "content": "<think>\nhm\n</think>\n\nYes."}, USER],
    "parts": [{"role": "user", "content": [text("one "), text("two")]}, BOT, USER],
    "answer in parts": [USER, {"role": "assistant", "content": [text(" a"), text("b ")]}],
    "long": [{"role": "user", "content": "word " * 400}],
}


def load(name: str) -> tuple[str, dict[str, str]]:
    if name in ("parts only", "corners"):
        return (PARTS_ONLY if name == "parts only" else CORNERS), SPECIAL
    data = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return data["chat_template"], data["special_tokens"]


def as_theirs(messages: list[dict[str, Any]], content_format: str) -> list[dict[str, Any]]:
    """What a user of transformers would give to a template of that kind."""
    out = []
    for message in messages:
        content = message["content"] or ""
        if content_format == "string" and isinstance(content, list):
            content = "".join(part["text"] for part in content)
        elif content_format == "openai" and isinstance(content, str):
            content = [text(content)]
        out.append({**message, "content": content})
    return out


TEMPLATES = {
    "gemma4": "any",
    "phi3": "string",
    "qwen3": "string",
    "smollm2": "string",
    "parts only": "openai",
    "corners": "string",
}


@pytest.mark.parametrize(("name", "content_format"), list(TEMPLATES.items()))
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
@pytest.mark.parametrize("mode", ["open", "closed", "continue"])
def test_equal_to_transformers(
    name: str, content_format: str, tools: list[dict[str, Any]] | None, mode: str
) -> None:
    """25 conversations, with tools or not, opened, closed, continued; or both refuse."""
    if (name, mode) == ("corners", "continue"):
        pytest.skip("it shows texts twice, and transformers leaves its mark in the first")
    source, special = load(name)
    raw = byte_level_tokenizer(special=sorted(set(special.values())))
    peer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, chat_template=source, **special
    )
    ours = ChatTemplate(source, special_tokens=special)
    assert ours.content_format == content_format
    options: dict[str, Any] = {
        "add_generation_prompt": mode == "open",
        "continue_final_message": mode == "continue",
        "tools": tools,
    }
    num_rendered = 0
    for label, messages in CHATS.items():
        checked = normalize_messages(messages, ours.content_format)
        try:
            expected = peer.apply_chat_template(
                as_theirs(messages, content_format), tokenize=False, extra="é", **options
            )
        except (jinja2.TemplateError, TypeError, ValueError) as err:
            with pytest.raises(InvalidRequest) as caught:
                ours.render(checked, variables={"extra": "é"}, **options)
            refusal = str(err) if isinstance(err, jinja2.TemplateError) else ""
            caught.match(re.escape(refusal))
        else:
            got = ours.render(checked, variables={"extra": "é"}, **options).text
            assert got == expected, label
            num_rendered += 1
    assert num_rendered >= (15 if mode != "continue" else 8)


def test_documents_and_variables_reach_the_template() -> None:
    """As transformers hands them over."""
    source = "{{ documents | tojson }} {{ style }} {{ bos_token }}"
    documents = [{"title": "T", "text": "é"}]
    raw = byte_level_tokenizer(special=["<s>", "</s>"])
    peer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, chat_template=source, **SPECIAL
    )
    expected = peer.apply_chat_template([USER], tokenize=False, documents=documents, style="x")
    ours = ChatTemplate(source, special_tokens=SPECIAL)
    got = ours.render([USER], documents=documents, variables={"style": "x"}).text
    assert got == expected


def test_variables_cannot_replace_messages() -> None:
    """What a request says elsewhere is not overwritten by its template variables."""
    ours = ChatTemplate("{{ messages }}", special_tokens={})
    for name in ("messages", "tools", "documents", "add_generation_prompt"):
        with pytest.raises(InvalidRequest) as caught:
            ours.render([USER], variables={name: []})
        assert caught.value.param == f"chat_template_kwargs.{name}"


@pytest.mark.parametrize(
    "source",
    [
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ namespace(_x=1) }}",
        "{{ namespace(**{'__init__': 1}) }}",
        "{{ dict.__class__.__mro__[1] }}",
        "{{ dict.mro() }}",
    ],
)
def test_the_sandbox_is_no_wider_than_theirs(source: str) -> None:
    """Namespaces and dict lead nowhere."""
    with pytest.raises(InvalidRequest):
        ChatTemplate(source, special_tokens={}).render([USER])


def test_namespace_takes_any_name() -> None:
    """Even `self`, as jinja2's own does."""
    template = ChatTemplate(
        "{% set n = namespace({'a': 1}, self=2) %}{{ n.self + n.a }}", special_tokens={}
    )
    assert template.render([USER]).text == "3"


CONTENT = [
    ("{{ messages[0].content }}", "string"),
    ("{% for m in messages %}{{ m['content'] }} an image of a vision{% endfor %}", "string"),
    ("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
     "openai"),
    ("{% for m in messages %}{% for p in m['content'] | selectattr('type', 'eq', 'text') %}"
     "{{ p.text }}{% endfor %}{% endfor %}", "openai"),
    ("{% for m in messages %}{% for p in m['content'][1:] %}{{ p }}{% endfor %}{% endfor %}",
     "openai"),
    ("{% for m in messages %}{{ m['content'][0]['text'] }}{% endfor %}", "openai"),
    ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
     "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}", "any"),
    ("{% macro show(c) %}{% if c is string %}{{ c }}{% else %}{% for p in c %}{{ p.text }}"
     "{% endfor %}{% endif %}{% endmacro %}"
     "{% for m in messages %}{{ show(m.content) }}{% endfor %}", "any"),
    ("{% for m in messages %}{% set c = m.content or [] %}{% for p in c %}{{ p.text }}"
     "{% endfor %}{% endfor %}", "openai"),
    ("{% for m in messages %}{% for t in m.tool_calls %}{{ t }}{% endfor %}{% endfor %}", "string"),
    ("{% for m in messages %}{{ m.content[0] }}{% endfor %}", "string"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "expected"), CONTENT)
def test_the_content_format_is_read_from_the_template(source: str, expected: str) -> None:
    """By what it does, not by words in it; the choice can be forced."""
    assert ChatTemplate(source, special_tokens={}).content_format == expected
    forced = ChatTemplate(source, special_tokens={}, content_format="openai")
    assert forced.content_format == "openai"


def test_forms_of_content() -> None:
    """Strings, parts, or what the client sent; a system message of a template for both is text."""
    parts = [{"type": "input_text", "text": "a"}, "b", {"type": "refusal", "refusal": "c"}]
    messages = [
        {"role": "system", "content": parts},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": parts},
    ]
    listed = [text("a"), text("b"), text("c")]

    def contents(content_format: Any) -> list[Any]:
        return [m["content"] for m in normalize_messages(messages, content_format)]

    assert contents("string") == ["abc", "u", "", "abc"]
    assert contents("openai") == [listed, [text("u")], [], listed]
    assert contents("any") == ["abc", "u", "", listed]


def test_continuing_where_there_is_nothing_to_continue() -> None:
    """A message without text, or one that the template hides."""
    ours = ChatTemplate("{% for m in messages %}{{ m.role }}{% endfor %}", special_tokens={})
    contents: list[Any] = ["hidden", []]
    for content in contents:
        with pytest.raises(InvalidRequest) as caught:
            ours.render([{"role": "assistant", "content": content}], continue_final_message=True)
        assert caught.value.param == "continue_final_message"
