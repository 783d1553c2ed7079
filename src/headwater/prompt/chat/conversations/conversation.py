"""A conversation format as data: how turns are written, what ends them, where images stand.

It knows messages as dicts whose content is a string, or a list of text and image parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from headwater.errors import InvalidRequest, NotSupported
from headwater.prompt.chat.format import ContentFormat, RenderedChat

__all__ = ["Conversation", "Style"]


class Style(Enum):
    """What stands between a role and its text; the second is what opens a turn to be written."""

    COLON = (": ", ":")
    SPACE = (" ", "")
    LINE = ("\n", "\n")
    PLAIN = ("", "")


@dataclass(slots=True, frozen=True, kw_only=True)
class Conversation:
    """A registered conversation format; its text has no BOS.

    Attributes:
        name: What `--chat-template` takes.
        roles: How a user's and an assistant's turn begin.
        style: What stands between that and the text.
        sep: Ends a user's turn, and an assistant's when there is no `sep2`.
        sep2: Ends an assistant's turn.
        system: The system text's place, with `{system}` in it.
        default_system: System message of a conversation that has none.
        system_in_user: The system text opens the first user message; else it comes before all.
        strips: Texts are stripped of whitespace around them.
        stop: Strings that end the assistant's turn.
        aliases: Other names of the format.
        image: Placeholder of an image; empty when it has no images.
        image_end: What follows an image's placeholder.
        images_first: A turn's images come before all its text; else they stay in order.
    """

    name: str
    roles: tuple[str, str]
    style: Style
    sep: str
    sep2: str | None = None
    system: str
    default_system: str = ""
    system_in_user: bool = False
    strips: bool = False
    stop: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    image: str = ""
    image_end: str = "\n"
    images_first: bool = False

    @property
    def content_format(self) -> ContentFormat:
        """Strings, until models take images."""
        return "string"

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> RenderedChat:
        """Render a conversation; see `ChatFormat.render`.

        Raises:
            NotSupported: Tools or documents are given.
            InvalidRequest: A role, or its place, does not fit; `param` is its path.
        """
        for value, param in ((tools, "tools"), (documents, "documents")):
            if value:
                raise NotSupported(f"the conversation {self.name} has no {param}", param=param)
        first, system = self._system_text(messages)
        pages = _Pages()
        if not self.system_in_user or not _is_user(messages, first):
            pages.write(self._own_system(system))
            system = ""
        for i in range(first, len(messages)):
            self._write_turn(pages, messages[i], f"messages[{i}]", system if i == first else "")
        if continue_final_message:
            if first == len(messages):
                raise InvalidRequest("there is no turn to continue", param="continue_final_message")
            pages.drop_last()  # the separator
        elif add_generation_prompt:
            pages.write(self.roles[1] + self.style.value[1])
        return RenderedChat(
            text=pages.text, stop=self.stop, image_slots=tuple(pages.slots), needs_bos=True
        )

    def _system_text(self, messages: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
        """Index of the first turn, and the system text in its place, if there is any."""
        first = 0
        while first < len(messages) and messages[first]["role"] == "system":
            first += 1
        for i in range(first, len(messages)):
            if messages[i]["role"] not in ("user", "assistant"):
                self._refuse(messages[i]["role"], f"messages[{i}]")
        texts = [_only_text(m, f"messages[{i}]") for i, m in enumerate(messages[:first])]
        text = "\n\n".join(filter(None, texts)) if first else self.default_system
        text = text.strip() if self.strips else text
        # Not str.format: the template's other braces, and the text's, are just text.
        return first, self.system.replace("{system}", text) if text else ""

    def _refuse(self, role: str, path: str) -> None:
        if role == "system":
            reason = f"in the conversation {self.name} a system message comes before all others"
        else:
            reason = f"the conversation {self.name} has no role {role}; a Jinja template may"
        raise InvalidRequest(reason, param=f"{path}.role")

    def _own_system(self, system: str) -> str:
        """The system text as it stands when no user message follows to take it in."""
        if not system or not self.system_in_user:
            return system
        return self.roles[0] + self.style.value[0] + system + self.sep

    def _write_turn(
        self, pages: "_Pages", message: Mapping[str, Any], path: str, system: str
    ) -> None:
        is_user = message["role"] == "user"
        if message.get("tool_calls"):
            raise InvalidRequest(
                f"the conversation {self.name} has no tool calls", param=f"{path}.tool_calls"
            )
        pages.write((self.roles[0] if is_user else self.roles[1]) + self.style.value[0] + system)
        if is_user:
            self._write_parts(pages, message["content"], path)
        else:
            pages.write(self._stripped(_only_text(message, path)))
        pages.write(self.sep if is_user or self.sep2 is None else self.sep2)

    def _write_parts(self, pages: "_Pages", content: Any, path: str) -> None:
        """A user's text and images."""
        if isinstance(content, str):
            pages.write(self._stripped(content))
            return
        parts = sorted(content, key=_is_text) if self.images_first else content
        for part in parts:
            if _is_text(part):
                pages.write(self._stripped(part["text"]))
            elif not self.image:
                raise NotSupported(
                    f"the conversation {self.name} has no images", param=f"{path}.content"
                )
            else:
                pages.write_image(self.image)
                pages.write(self.image_end)

    def _stripped(self, text: str) -> str:
        return text.strip() if self.strips else text


class _Pages:
    """Text as it is written, with the places of images."""

    def __init__(self) -> None:
        self.slots: list[int] = []
        self._pieces: list[str] = []
        self._len = 0

    @property
    def text(self) -> str:
        """All that has been written."""
        return "".join(self._pieces)

    def write(self, text: str) -> None:
        """Add text."""
        self._pieces.append(text)
        self._len += len(text)

    def write_image(self, placeholder: str) -> None:
        """Add an image's placeholder and note where."""
        self.slots.append(self._len)
        self.write(placeholder)

    def drop_last(self) -> None:
        """Take back what was written last."""
        self._len -= len(self._pieces.pop())


def _is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text"


def _is_user(messages: Sequence[Mapping[str, Any]], index: int) -> bool:
    return index < len(messages) and messages[index]["role"] == "user"


def _only_text(message: Mapping[str, Any], path: str) -> str:
    """Content that has no images."""
    content = message["content"]
    if isinstance(content, str):
        return content
    if not all(map(_is_text, content)):
        raise NotSupported("only a user's message may hold images", param=f"{path}.content")
    return "".join(part["text"] for part in content)
