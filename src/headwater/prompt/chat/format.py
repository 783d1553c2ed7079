"""What every source of chat prompts has in common; it knows no template and no tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

__all__ = ["ChatFormat", "ContentFormat", "RenderedChat"]

# How a format wants a message's content: one string, a list of parts, or as the client sent it.
ContentFormat = Literal["string", "openai", "any"]


@dataclass(slots=True, frozen=True, kw_only=True)
class RenderedChat:
    """A conversation as prompt text.

    Attributes:
        text: The prompt.
        stop: Strings that end the assistant's turn.
        image_slots: Where in the text each image's placeholder begins, in order.
        needs_bos: The text has no BOS; what the tokenizer puts before a text belongs there.
    """

    text: str
    stop: tuple[str, ...] = ()
    image_slots: tuple[int, ...] = ()
    needs_bos: bool = False


class ChatFormat(Protocol):
    """Turns messages into prompt text: a Jinja template or a registered conversation."""

    @property
    def content_format(self) -> ContentFormat:
        """The form in which it takes contents."""

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
        """Render a conversation.

        Args:
            messages: Checked messages, contents in `content_format`.
            add_generation_prompt: End with what opens the assistant's turn.
            continue_final_message: Leave the last message open, to be continued.
            tools: Functions that the model may call, as in OpenAI's API.
            documents: Texts that the answer may use.
            variables: More variables for a template; a conversation has none.

        Raises:
            InvalidRequest: The messages do not fit the format.
        """
