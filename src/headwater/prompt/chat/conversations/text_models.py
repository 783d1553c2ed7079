"""Conversations of models that read text."""

from headwater.prompt.chat.conversations.conversation import Conversation, Style

__all__ = ["TEXT_MODELS"]

_IM_ROLES = ("<|im_start|>user", "<|im_start|>assistant")
_IM_SYSTEM = "<|im_start|>system\n{system}<|im_end|>\n"
_DEEPSEEK_END = "<｜end▁of▁sentence｜>"  # noqa: RUF001  # the token's own spelling

TEXT_MODELS = (
    Conversation(
        name="chatml",
        roles=_IM_ROLES,
        style=Style.LINE,
        sep="<|im_end|>\n",
        system=_IM_SYSTEM,
        default_system="You are a helpful assistant.",
        stop=("<|endoftext|>", "<|im_end|>"),
        aliases=("qwen",),
        image="<image>",
    ),
    Conversation(
        name="yi-1.5",
        roles=_IM_ROLES,
        style=Style.LINE,
        sep="<|im_end|>\n",
        system="{system}",
        stop=("<|im_end|>",),
    ),
    Conversation(
        # SGLang's entry of this name writes `role: text` without <|im_end|>, which is not what
        # the model has learnt; this is the model's own format.
        name="internlm2-chat",
        roles=_IM_ROLES,
        style=Style.LINE,
        sep="<|im_end|>\n",
        system=_IM_SYSTEM,
        stop=("<|im_end|>", "<|action_end|>"),
        image="<image>",
    ),
    Conversation(
        name="llama-2",
        roles=("[INST]", "[/INST]"),
        style=Style.SPACE,
        sep=" ",
        sep2=" </s><s>",
        system="<<SYS>>\n{system}\n<</SYS>>\n\n",
        system_in_user=True,
        stop=("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"),
        aliases=("llama-2-chat",),
        image="<image>",
    ),
    Conversation(
        name="llama-3",
        roles=(
            "<|start_header_id|>user<|end_header_id|>\n\n",
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        style=Style.PLAIN,
        sep="<|eot_id|>",
        system="<|start_header_id|>system<|end_header_id|>\n\n{system}<|eot_id|>",
        strips=True,
        stop=("<|end_of_text|>", "<|eot_id|>"),
        aliases=("llama-3-instruct",),
    ),
    Conversation(
        # SGLang leaves out the first [INST] when there is a system message; this does not.
        name="mistral",
        roles=("[INST]", "[/INST]"),
        style=Style.SPACE,
        sep=" ",
        sep2=" </s><s>",
        system="[SYSTEM_PROMPT]\n{system}\n[/SYSTEM_PROMPT]\n\n",
        stop=("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        aliases=("devstral",),
        image="[IMG]",
    ),
    Conversation(
        name="gemma-it",
        roles=("<start_of_turn>user\n", "<start_of_turn>model\n"),
        style=Style.PLAIN,
        sep="<end_of_turn>\n",
        system="{system}\n\n",
        default_system="You are a helpful assistant.",
        system_in_user=True,
        stop=("<end_of_turn>",),
        image="<start_of_image>",
    ),
    Conversation(
        name="gemma-4-it",
        roles=("<|turn>user\n", "<|turn>model\n"),
        style=Style.PLAIN,
        sep="<turn|>\n",
        system="<|turn>system\n{system}<turn|>\n",
        strips=True,
        stop=("<turn|>",),
        image="<|image|>",
    ),
    Conversation(
        name="deepseek-v3",
        roles=("<｜User｜>", "<｜Assistant｜>"),  # noqa: RUF001
        style=Style.PLAIN,
        sep="",
        sep2=_DEEPSEEK_END,
        system="{system}",
        stop=(_DEEPSEEK_END,),
        aliases=("deepseek",),
    ),
    Conversation(
        name="phi-3",
        roles=("<|user|>", "<|assistant|>"),
        style=Style.LINE,
        sep="<|end|>\n",
        system="<|system|>\n{system}<|end|>\n",
        stop=("<|end|>",),
        aliases=("phi",),
    ),
    Conversation(
        name="granite-3-instruct",
        roles=(
            "<|start_of_role|>user<|end_of_role|>",
            "<|start_of_role|>assistant<|end_of_role|>",
        ),
        style=Style.PLAIN,
        sep="<|end_of_text|>\n",
        system="<|start_of_role|>system<|end_of_role|>{system}<|end_of_text|>\n",
        stop=("<|end_of_text|>",),
    ),
    Conversation(
        name="c4ai-command-r",
        roles=(
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>",
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        ),
        style=Style.PLAIN,
        sep="<|END_OF_TURN_TOKEN|>",
        system="<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{system}<|END_OF_TURN_TOKEN|>",
        strips=True,
        stop=("<|END_OF_TURN_TOKEN|>",),
    ),
)
