"""Conversations of models that also read images."""

from headwater.prompt.chat.conversations.conversation import Conversation, Style

__all__ = ["VISION_MODELS"]

_IM_ROLES = ("<|im_start|>user", "<|im_start|>assistant")
_IM_SYSTEM = "<|im_start|>system\n{system}<|im_end|>\n"
_QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
_HELPFUL = "You are a helpful assistant."
_HEADERS = (
    "<|start_header_id|>user<|end_header_id|>\n\n",
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
)
_HEADER_SYSTEM = "<|start_header_id|>system<|end_header_id|>\n\n{system}<|eot_id|>"
_VISION_ASSISTANT = (
    "You are a helpful language and vision assistant. You are able to understand the visual "
    "content that the user provides, and assist the user with a variety of tasks using natural "
    "language."
)
_DEEPSEEK_END = "<｜end▁of▁sentence｜>"  # noqa: RUF001  # the token's own spelling

VISION_MODELS = (
    Conversation(
        name="yi-vl",
        roles=("### Human", "### Assistant"),
        style=Style.COLON,
        sep="\n",
        system="{system}\n\n",
        default_system=(
            "This is a chat between an inquisitive human and an AI assistant. Assume the role of "
            "the AI assistant. Read all the images carefully, and respond to the human's questions "
            "with informative, helpful, detailed and polite answers. "
            "这是一个好奇的人类和一个人工智能助手之间的对话。假设你扮演这个AI助手的角色。"
            "仔细阅读所有的图像，并对人类的问题做出信息丰富、有帮助、详细的和礼貌的回答。"  # noqa: RUF001
        ),
        stop=("###",),
        image="<image_placeholder>",
    ),
    Conversation(
        name="vicuna_v1.1",
        roles=("USER", "ASSISTANT"),
        style=Style.COLON,
        sep=" ",
        sep2="</s>",
        system="{system} ",
        default_system=(
            "A chat between a curious user and an artificial intelligence assistant. The assistant "
            "gives helpful, detailed, and polite answers to the user's questions."
        ),
        aliases=("llava-1.5", "llava-1.6-vicuna"),
        image="<image>",
    ),
    Conversation(
        name="llava-1.6-mistral",
        roles=("[INST]", "[/INST]"),
        style=Style.SPACE,
        sep=" ",
        sep2=" </s>",
        system="<<SYS>>\n{system}\n<</SYS>>\n\n",
        system_in_user=True,
        stop=("[INST]", "[/INST]"),
        image="<image>",
    ),
    Conversation(
        name="chatml-llava",
        roles=_IM_ROLES,
        style=Style.LINE,
        sep="<|im_end|>\n",
        system=_IM_SYSTEM,
        default_system=_HELPFUL,
        stop=("<|endoftext|>", "<|im_end|>"),
        aliases=("llava-1.6-34b", "llava-onevision"),
        image="<image>",
    ),
    Conversation(
        name="llava_llama_3",
        roles=_HEADERS,
        style=Style.PLAIN,
        sep="<|eot_id|>",
        system=_HEADER_SYSTEM,
        default_system=_VISION_ASSISTANT,
        strips=True,
        stop=("<|end_of_text|>", "<|eot_id|>"),
        aliases=("llama-3-instruct-llava",),
        image="<image>",
    ),
    Conversation(
        name="llama_3_vision",
        roles=_HEADERS,
        style=Style.PLAIN,
        sep="<|eot_id|>",
        system=_HEADER_SYSTEM,
        default_system=_VISION_ASSISTANT,
        strips=True,
        stop=("<|end_of_text|>", "<|eot_id|>"),
        image="<|image|>",
    ),
    Conversation(
        name="llama-4",
        roles=(
            "<|header_start|>user<|header_end|>\n\n",
            "<|header_start|>assistant<|header_end|>\n\n",
        ),
        style=Style.PLAIN,
        sep="<|eot|>",
        system="<|header_start|>system<|header_end|>\n\n{system}<|eot|>",
        strips=True,
        stop=("<|end_of_text|>", "<|eot|>", "<|eom|>"),
        image="<|image|>",
    ),
    Conversation(
        name="deepseek-vl2",
        roles=("<|User|>", "<|Assistant|>"),
        style=Style.COLON,
        sep="\n\n",
        sep2=_DEEPSEEK_END,
        system="{system}\n\n",
        stop=("User:", _DEEPSEEK_END),
        image="<image>",
    ),
    Conversation(
        name="janus-pro",
        roles=("User", "Assistant"),
        style=Style.COLON,
        sep="\n\n",
        sep2=_DEEPSEEK_END,
        system="{system}\n\n",
        default_system=_VISION_ASSISTANT,
        stop=("<|User|>", _DEEPSEEK_END),
        aliases=("janus",),
        image="<image_placeholder>",
    ),
    Conversation(
        name="phi-4-mm",
        roles=("<|user|>", "<|assistant|>"),
        style=Style.PLAIN,
        sep="<|end|>",
        system="<|system|>{system}<|end|>",
        stop=("<|end|>",),
        image="<|endoftext10|>",
    ),
    Conversation(
        name="qwen2-vl",
        roles=_IM_ROLES,
        style=Style.LINE,
        sep="<|im_end|>\n",
        system=_IM_SYSTEM,
        default_system=_HELPFUL,
        stop=("<|im_end|>",),
        image=_QWEN_IMAGE,
        image_end="",
    ),
    Conversation(
        name="points-v15-chat",
        roles=_IM_ROLES,
        style=Style.LINE,
        sep="<|im_end|>\n",
        system=_IM_SYSTEM,
        stop=("<|im_end|>",),
        image=_QWEN_IMAGE,
    ),
    Conversation(
        name="moss-vl",
        roles=_IM_ROLES,
        style=Style.LINE,
        sep="<|im_end|>\n",
        system=_IM_SYSTEM,
        stop=("<|im_end|>",),
        image="<|image|>",
        image_end="",
    ),
    Conversation(
        name="internvl-2-5",
        roles=_IM_ROLES,
        style=Style.LINE,
        sep="<|im_end|>\n",
        system=_IM_SYSTEM,
        default_system=(
            "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、"  # noqa: RUF001
            "清华大学及多家合作单位联合开发的多模态大语言模型。"
        ),
        stop=("<|im_end|>", "<|action_end|>"),
        image="<IMG_CONTEXT>",
        images_first=True,
    ),
    Conversation(
        name="minicpmv",
        roles=_IM_ROLES,
        style=Style.LINE,
        sep="<|im_end|>\n",
        system=_IM_SYSTEM,
        default_system=_HELPFUL,
        stop=("<|im_end|>", "<|endoftext|>"),
        image="(<image>./</image>)",
    ),
    Conversation(
        name="minicpmo",
        roles=_IM_ROLES,
        style=Style.LINE,
        sep="<|im_end|>\n",
        system=_IM_SYSTEM,
        default_system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
        stop=("<|im_end|>", "<|endoftext|>"),
        image="(<image>./</image>)",
    ),
    Conversation(
        name="kimi-vl",
        roles=(
            "<|im_user|>user<|im_middle|>",
            "<|im_assistant|>assistant<|im_middle|>",
        ),
        style=Style.PLAIN,
        sep="<|im_end|>",
        system="<|im_system|>system<|im_middle|>{system}<|im_end|>",
        default_system="You are a helpful assistant",
        stop=("<|im_end|>",),
        image="<|media_start|>image<|media_content|><|media_pad|><|media_end|>",
    ),
)
