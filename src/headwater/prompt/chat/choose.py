"""Which format serves chats: a conversation, a Jinja file, or the model's own templates."""

from collections.abc import Mapping
from pathlib import Path

from headwater.errors import ConfigError, ModelLoadError
from headwater.prompt.chat.conversations import CONVERSATIONS, find_conversation
from headwater.prompt.chat.format import ChatFormat, ContentFormat
from headwater.prompt.chat.template import ChatTemplate

__all__ = ["load_formats"]


def load_formats(
    wanted: str | None,
    own: Mapping[str, str],
    *,
    special_tokens: Mapping[str, str],
    content_format: ContentFormat | None = None,
    name: str | None = None,
) -> dict[str, ChatFormat]:
    """The formats that requests choose from, by name; `default` among them unless empty.

    Args:
        wanted: `--chat-template`: a conversation, or a Jinja file; None takes the model's own.
        own: The model's own templates by name.
        special_tokens: The templates' variables.
        content_format: The form of contents; None finds out.
        name: The only one of the model's own templates to use.

    Raises:
        ConfigError: There is no such conversation, file or named template.
        ModelLoadError: A template is not valid.
    """
    if wanted is not None:
        if name is not None:
            raise ConfigError(
                "--chat-template-name chooses among the model's own templates, and --chat-template "
                "replaces them; give one of the two",
                param="chat_template_name",
            )
        conversation = find_conversation(wanted)
        if conversation is not None:
            return {"default": conversation}
        own = {"default": _read(wanted)}
    chosen = {"default": own[_checked(name, own)]} if name is not None else dict(own)
    if chosen and "default" not in chosen:
        chosen["default"] = next(iter(chosen.values()))
    return {
        key: ChatTemplate(source, special_tokens=special_tokens, content_format=content_format)
        for key, source in chosen.items()
    }


def _read(path: str) -> str:
    if not Path(path).is_file():
        known = ", ".join(sorted(c.name for c in CONVERSATIONS))
        raise ConfigError(
            f"--chat-template {path} is neither a file nor a registered conversation: {known}",
            param="chat_template",
        )
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise ModelLoadError(f"cannot read the chat template {path}: {err}") from None


def _checked(name: str, own: Mapping[str, str]) -> str:
    if name not in own:
        known = ", ".join(sorted(own)) or "none"
        raise ConfigError(
            f"the model has no chat template {name!r}; it has: {known}", param="chat_template_name"
        )
    return name
