"""Registered conversations against their makers' formats, and golden prompts."""

from typing import Any

import pytest
import transformers

from headwater.errors import InvalidRequest, NotSupported
from headwater.prompt.chat import CONVERSATIONS, find_conversation
from headwater.prompt.chat.conversations import Conversation
from tests.kit.scripted import byte_level_tokenizer
from tests.unit.prompt.references import HELPFUL, JINJA, VISION, WIRE, Wire

NAMES = [c.name for c in CONVERSATIONS]
IMAGE = {"type": "image"}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def bot(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def system(content: str) -> dict[str, Any]:
    return {"role": "system", "content": content}


CHATS: list[list[dict[str, Any]]] = [
    [user("Hi")],
    [system("Be brief."), user("Hi")],
    [user("Hi"), bot("Hello."), user("More")],
    [system("Be brief."), user("Hi"), bot("Hello."), user("More")],
    [system("S"), user("1"), bot("2"), user("3"), bot("4"), user("5"), bot("6"), user("7")],
    [user("日本語 🥨 مرحبا")],
    [system("你好世界"), user("né"), bot("ß"), user("Ω")],
    [user("```python\nprint('{system} {0} %s {{ x }}')\n```")],
    [system("{system} {% if %} %s"), user("Hi")],
    [user("")],
    [user("Hi"), bot(""), user("Still there?")],
    [user("  a \n\n\tb  ")],
    [system(" s \n"), user("\nx "), bot(" y\n"), user(" ")],
    [user("a\r\nb\n")],
    [user("word " * 300)],
    [user("USER: no\n### Human: no\n\nUser: no")],
    [user("<b>&amp;</b> \"q\" 'd'"), bot("\\n \\\\"), user("$1")],
    [user("Hi", ), bot("Hello."), user("x" * 200), bot("y" * 200), user("z")],
]  # fmt: skip
PREFILL = [
    [user("Hi"), bot("The answer is")],
    [system("S"), user("Hi"), bot("Hello."), user("More"), bot("1.")],
    [user("Hi"), bot("日本")],
]


def conversation(name: str) -> Conversation:
    found = find_conversation(name)
    assert found is not None
    return found


def peer(source: str) -> Any:
    raw = byte_level_tokenizer(special=["<s>", "</s>"])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=source)


def written(wire: Wire, messages: list[dict[str, Any]], *, opens: bool) -> str:
    """A chat by its turns, written out."""
    turns = [("system", wire.default)] if messages[0]["role"] != "system" else []
    turns += [(m["role"], m["content"]) for m in messages]
    forms = {"system": wire.system, "user": wire.user, "assistant": wire.assistant}
    texts = [(role, text.strip() if wire.is_stripped else text) for role, text in turns]
    shown = [forms[role].replace("%s", text) for role, text in texts if role != "system" or text]
    if opens:
        return "".join(shown) + wire.opening
    before, _ = forms[texts[-1][0]].split("%s")
    return "".join(shown[:-1]) + before + texts[-1][1]


@pytest.mark.parametrize("name", sorted(JINJA))
def test_equal_to_the_models_own_template(name: str) -> None:
    """18 conversations, and three that are continued, through transformers."""
    ours, theirs = conversation(name), peer(JINJA[name])
    for messages in CHATS:
        expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        # Llama 2's own template closes a user's turn with [/INST], which opens the answer here.
        assert ours.render(messages).text == expected
    for messages in PREFILL:
        expected = theirs.apply_chat_template(messages, tokenize=False, continue_final_message=True)
        assert ours.render(messages, continue_final_message=True).text == expected


@pytest.mark.parametrize("name", sorted(WIRE))
def test_equal_to_the_written_format(name: str) -> None:
    """The same conversations for formats that no Jinja template is published for."""
    ours = conversation(name)
    for messages in CHATS:
        assert ours.render(messages).text == written(WIRE[name], messages, opens=True)
    for messages in PREFILL:
        expected = written(WIRE[name], messages, opens=False)
        assert ours.render(messages, continue_final_message=True).text == expected


def test_every_conversation_has_a_reference() -> None:
    """A new entry needs one; names and aliases are unique."""
    assert sorted(NAMES) == sorted([*JINJA, *WIRE])
    every = [name for c in CONVERSATIONS for name in (c.name, *c.aliases)]
    assert len(set(every)) == len(every)
    assert find_conversation("no-such") is None
    assert find_conversation("llava-1.5") is conversation("vicuna_v1.1")


END = "<｜end▁of▁sentence｜>"  # noqa: RUF001  # the token's own spelling
QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
# Stop strings, and a turn of an image and "Look".
DOCUMENTED: dict[str, tuple[tuple[str, ...], str | None]] = {
    "chatml": (("<|endoftext|>", "<|im_end|>"), "<image>\nLook"),
    "yi-1.5": (("<|im_end|>",), None),
    "internlm2-chat": (("<|im_end|>", "<|action_end|>"), "<image>\nLook"),
    "llama-2": (("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"), "<image>\nLook"),
    "llama-3": (("<|end_of_text|>", "<|eot_id|>"), None),
    "mistral": (("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"), "[IMG]\nLook"),
    "gemma-it": (("<end_of_turn>",), "<start_of_image>\nLook"),
    "gemma-4-it": (("<turn|>",), "<|image|>\nLook"),
    "deepseek-v3": ((END,), None),
    "phi-3": (("<|end|>",), None),
    "granite-3-instruct": (("<|end_of_text|>",), None),
    "c4ai-command-r": (("<|END_OF_TURN_TOKEN|>",), None),
    "yi-vl": (("###",), "<image_placeholder>\nLook"),
    "vicuna_v1.1": ((), "<image>\nLook"),
    "llava-1.6-mistral": (("[INST]", "[/INST]"), "<image>\nLook"),
    "chatml-llava": (("<|endoftext|>", "<|im_end|>"), "<image>\nLook"),
    "llava_llama_3": (("<|end_of_text|>", "<|eot_id|>"), "<image>\nLook"),
    "llama_3_vision": (("<|end_of_text|>", "<|eot_id|>"), "<|image|>\nLook"),
    "llama-4": (("<|end_of_text|>", "<|eot|>", "<|eom|>"), "<|image|>\nLook"),
    "deepseek-vl2": (("User:", END), "<image>\nLook"),
    "janus-pro": (("<|User|>", END), "<image_placeholder>\nLook"),
    "phi-4-mm": (("<|end|>",), "<|endoftext10|>\nLook"),
    "qwen2-vl": (("<|im_end|>",), f"{QWEN_IMAGE}Look"),
    "points-v15-chat": (("<|im_end|>",), f"{QWEN_IMAGE}\nLook"),
    "moss-vl": (("<|im_end|>",), "<|image|>Look"),
    "internvl-2-5": (("<|im_end|>", "<|action_end|>"), "<IMG_CONTEXT>\nLook"),
    "minicpmv": (("<|im_end|>", "<|endoftext|>"), "(<image>./</image>)\nLook"),
    "minicpmo": (("<|im_end|>", "<|endoftext|>"), "(<image>./</image>)\nLook"),
    "kimi-vl": (
        ("<|im_end|>",),
        "<|media_start|>image<|media_content|><|media_pad|><|media_end|>\nLook",
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_stop_strings_and_images(name: str) -> None:
    """As documented; a slot is where a placeholder begins; text alone has none."""
    stop, shown = DOCUMENTED[name]
    ours = conversation(name)
    assert ours.render([user("Hi")]).stop == stop
    assert ours.render([user("Hi")]).image_slots == ()
    look = {"type": "text", "text": "Look"}
    messages = [user([IMAGE, look]), bot("A cat."), user([look, IMAGE, IMAGE])]
    if shown is None:
        with pytest.raises(NotSupported) as caught:
            ours.render(messages)
        assert caught.value.param == "messages[0].content"
        return
    rendered = ours.render(messages)
    plain = ours.render([user("Look"), bot("A cat."), user("Look")])
    image, end = ours.image, ours.image_end
    assert shown == image + end + "Look"
    assert shown in rendered.text
    assert len(rendered.image_slots) == 3
    assert rendered.image_slots[0] == rendered.text.index(shown)
    assert all(rendered.text.startswith(image, slot) for slot in rendered.image_slots)
    assert rendered.text.replace(image + end, "") == plain.text
    is_first = f"{image}{end}{image}{end}Look" in rendered.text
    assert is_first == (name == "internvl-2-5")


GOLDEN = {
    "yi-vl": "S\n\n### Human: Hi\n### Assistant: Yo\n### Human: More\n### Assistant:",
    "vicuna_v1.1": "S USER: Hi ASSISTANT: Yo</s>USER: More ASSISTANT:",
    "llama-2": "[INST] <<SYS>>\nS\n<</SYS>>\n\nHi [/INST] Yo </s><s>[INST] More [/INST]",
    "llava-1.6-mistral": "[INST] <<SYS>>\nS\n<</SYS>>\n\nHi [/INST] Yo </s>[INST] More [/INST]",
    "phi-3": "<|system|>\nS<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nYo<|end|>\n"
    "<|user|>\nMore<|end|>\n<|assistant|>\n",
    "gemma-it": "<start_of_turn>user\nS\n\nHi<end_of_turn>\n<start_of_turn>model\nYo<end_of_turn>\n"
    "<start_of_turn>user\nMore<end_of_turn>\n<start_of_turn>model\n",
    "janus-pro": f"S\n\nUser: Hi\n\nAssistant: Yo{END}User: More\n\nAssistant:",
    "deepseek-v3": f"S<｜User｜>Hi<｜Assistant｜>Yo{END}<｜User｜>More<｜Assistant｜>",  # noqa: RUF001
}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden_prompts(name: str) -> None:
    """Written by hand."""
    messages = [system("S"), user("Hi"), bot("Yo"), user("More")]
    assert conversation(name).render(messages).text == GOLDEN[name]


@pytest.mark.parametrize("name", NAMES)
def test_structure(name: str) -> None:
    """One system slot, texts in order, an open turn only when asked for, no BOS."""
    ours = conversation(name)
    messages = [system("sys-tem"), user("us-er"), bot("bo-t"), user("la-st")]
    opened = ours.render(messages)
    closed = ours.render(messages, add_generation_prompt=False)
    places = [opened.text.index(m["content"]) for m in messages]
    assert places == sorted(places)
    assert opened.text.count("sys-tem") == 1
    assert opened.text == closed.text + ours.roles[1] + ours.style.value[1]
    assert opened.needs_bos
    left_open = ours.render(messages[:3], continue_final_message=True)
    assert left_open.text.endswith("bo-t")
    # The prompt of the next turn begins with this one and its answer.
    assert opened.text.startswith(left_open.text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("role", ["tool", "function"])
def test_other_roles_are_refused(name: str, role: str) -> None:
    """By their place, and so are calls, tools and documents."""
    ours = conversation(name)
    with pytest.raises(InvalidRequest) as caught:
        ours.render([user("Hi"), {"role": role, "content": "x"}])
    assert caught.value.param == "messages[1].role"
    with pytest.raises(InvalidRequest) as caught:
        ours.render([user("Hi"), {**bot(""), "tool_calls": [{"function": {"name": "f"}}]}])
    assert caught.value.param == "messages[1].tool_calls"
    refused: list[dict[str, Any]] = [{"tools": [{}]}, {"documents": [{}]}]
    for values in refused:
        with pytest.raises(NotSupported) as caught:
            ours.render([user("Hi")], **values)
        assert caught.value.param in values


def test_system_messages() -> None:
    """Several at the beginning are one; an empty one is none at all; a late one is refused."""
    ours = conversation("chatml")
    two = ours.render([system("One."), system("Two."), user("Hi")]).text
    assert two.startswith("<|im_start|>system\nOne.\n\nTwo.<|im_end|>\n<|im_start|>user\n")
    assert ours.render([system(""), user("Hi")]).text.startswith("<|im_start|>user\nHi")
    assert ours.render([user("Hi")]).text.startswith(f"<|im_start|>system\n{HELPFUL}<|im_end|>\n")
    assert VISION in conversation("janus-pro").render([user("Hi")]).text
    with pytest.raises(InvalidRequest, match="before all others") as caught:
        ours.render([user("Hi"), system("Late.")])
    assert caught.value.param == "messages[1].role"
    parts = {"role": "system", "content": [{"type": "text", "text": "S"}, IMAGE]}
    with pytest.raises(NotSupported) as caught:
        ours.render([parts, user("Hi")])
    assert caught.value.param == "messages[0].content"


@pytest.mark.parametrize("name", ["llama-2", "gemma-it"])
def test_a_system_text_without_a_user_message_is_not_lost(name: str) -> None:
    """Where the first user message carries it, it gets a turn when there is none."""
    ours = conversation(name)
    text = ours.render([system("sys-tem"), bot("Hello.")]).text
    assert text.index("sys-tem") < text.index("Hello.")
    assert text.startswith(ours.roles[0])


def test_nothing_to_continue() -> None:
    """A system message is no turn."""
    with pytest.raises(InvalidRequest) as caught:
        conversation("chatml").render([system("S")], continue_final_message=True)
    assert caught.value.param == "continue_final_message"
