"""How models' makers write conversations, as Jinja or as whole turns; no headwater code is used.

`JINJA` are the models' own templates without BOS, default system messages added where the registry
has one. `WIRE` are other formats by their turns, `%s` is the text.
"""

# ruff: noqa: RUF001  # the tokens' and the texts' own characters

from typing import NamedTuple

__all__ = ["HELPFUL", "JINJA", "VISION", "WIRE", "Wire"]

HELPFUL = "You are a helpful assistant."
VISION = (
    "You are a helpful language and vision assistant. You are able to understand the visual content"
    " that the user provides, and assist the user with a variety of tasks using natural language."
)
VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions."
)
YI_VL = (
    "This is a chat between an inquisitive human and an AI assistant. Assume the role of the AI "
    "assistant. Read all the images carefully, and respond to the human's questions with "
    "informative, helpful, detailed and polite answers. 这是一个好奇的人类和一个人工智能助手之间的"
    "对话。假设你扮演这个AI助手的角色。仔细阅读所有的图像，并对人类的问题做出信息丰富、有帮助、"
    "详细的和礼貌的回答。"
)
INTERNVL = (
    "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的"
    "多模态大语言模型。"
)
QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."


def chatml(default: str = "") -> str:
    """As Qwen2's and Yi's, with that default."""
    head = (
        "{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\n" + default + "<|im_end|>\n' }}{% endif %}"
    )
    return (
        "{% for message in messages %}"
        + (head if default else "")
        + "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )


def llama3(default: str = "", start: str = "start_header_id", end: str = "end_header_id",
           eot: str = "eot_id") -> str:  # fmt: skip
    """As Llama 3's and, with other tokens, Llama 4's."""
    opened = f"<|{start}|>%s<|{end}|>\n\n"
    head = (
        "{% if loop.first and messages[0]['role'] != 'system' %}{{ '"
        + opened % "system" + default + f"<|{eot}|>" + "' }}{% endif %}"
    )  # fmt: skip
    return (
        "{% for message in messages %}"
        + (head if default else "")
        + f"{{{{ '<|{start}|>' + message['role'] + '<|{end}|>\n\n' + message['content'] | trim"
        f" + '<|{eot}|>' }}}}"
        "{% endfor %}{% if add_generation_prompt %}{{ '" + opened % "assistant" + "' }}{% endif %}"
    )


_SPLIT = (
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}"
    "{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}"
    "{% endif %}"
)
LLAMA2 = (
    _SPLIT + "{% for message in turns %}"
    "{% if loop.index0 == 0 and system %}"
    "{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + content + ' [/INST]' }}"
    "{% else %}{{ ' ' + content + END }}{% endif %}{% endfor %}"
)
GEMMA = (
    _SPLIT.replace("set system = ''", f"set system = '{HELPFUL}'") + "{% for message in turns %}"
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else 'user') + '\n' }}"
    "{% if loop.first and system %}{{ system + '\n\n' }}{% endif %}"
    "{{ message['content'] + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
DEEPSEEK = (
    _SPLIT + "{{ system }}{% for message in turns %}"
    "{% if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}"
    "{% else %}{{ '<｜Assistant｜>' + message['content'] + '<｜end▁of▁sentence｜>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}"
)
PHI3 = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
PHI4_MM = PHI3.replace("\\n", "").replace("\n", "")
GRANITE = (
    "{% for message in messages %}{{ '<|start_of_role|>' + message['role'] + '<|end_of_role|>'"
    " + message['content'] + '<|end_of_text|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}"
)
COMMAND_R = (
    _SPLIT
    + "{% if system %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system | trim"
    + " + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% for message in turns %}"
    "{{ '<|START_OF_TURN_TOKEN|>' + ('<|USER_TOKEN|>' if message['role'] == 'user' else "
    "'<|CHATBOT_TOKEN|>') + message['content'] | trim + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}"
)

JINJA = {
    "chatml": chatml(HELPFUL),
    "yi-1.5": _SPLIT + "{{ system }}" + chatml().replace("in messages", "in turns"),
    "internlm2-chat": chatml(),
    "qwen2-vl": chatml(HELPFUL),
    "minicpmv": chatml(HELPFUL),
    "minicpmo": chatml(QWEN),
    "internvl-2-5": chatml(INTERNVL),
    "chatml-llava": chatml(HELPFUL),
    "points-v15-chat": chatml(),
    "moss-vl": chatml(),
    "llama-2": LLAMA2.replace("END", "' </s><s>'"),
    "llava-1.6-mistral": LLAMA2.replace("END", "' </s>'"),
    "llama-3": llama3(),
    "llama_3_vision": llama3(VISION),
    "llava_llama_3": llama3(VISION),
    "llama-4": llama3(start="header_start", end="header_end", eot="eot"),
    "gemma-it": GEMMA,
    "deepseek-v3": DEEPSEEK,
    "phi-3": PHI3,
    "phi-4-mm": PHI4_MM,
    "granite-3-instruct": GRANITE,
    "c4ai-command-r": COMMAND_R,
}


class Wire(NamedTuple):
    """A format by its turns."""

    system: str
    user: str
    assistant: str
    opening: str
    default: str = ""
    is_stripped: bool = False


WIRE = {
    "yi-vl": Wire("%s\n\n", "### Human: %s\n", "### Assistant: %s\n", "### Assistant:", YI_VL),
    "vicuna_v1.1": Wire("%s ", "USER: %s ", "ASSISTANT: %s</s>", "ASSISTANT:", VICUNA),
    "mistral": Wire(
        "[SYSTEM_PROMPT]\n%s\n[/SYSTEM_PROMPT]\n\n", "[INST] %s ", "[/INST] %s </s><s>", "[/INST]"
    ),
    "deepseek-vl2": Wire(
        "%s\n\n", "<|User|>: %s\n\n", "<|Assistant|>: %s<｜end▁of▁sentence｜>", "<|Assistant|>:"
    ),
    "janus-pro": Wire(
        "%s\n\n", "User: %s\n\n", "Assistant: %s<｜end▁of▁sentence｜>", "Assistant:", VISION
    ),
    "kimi-vl": Wire(
        "<|im_system|>system<|im_middle|>%s<|im_end|>",
        "<|im_user|>user<|im_middle|>%s<|im_end|>",
        "<|im_assistant|>assistant<|im_middle|>%s<|im_end|>",
        "<|im_assistant|>assistant<|im_middle|>",
        "You are a helpful assistant",
    ),
    "gemma-4-it": Wire(
        "<|turn>system\n%s<turn|>\n",
        "<|turn>user\n%s<turn|>\n",
        "<|turn>model\n%s<turn|>\n",
        "<|turn>model\n",
        is_stripped=True,
    ),
}
