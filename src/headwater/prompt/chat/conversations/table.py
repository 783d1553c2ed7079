"""All registered conversations; a new one is an entry in `text_models` or `vision_models`."""

from headwater.prompt.chat.conversations.conversation import Conversation
from headwater.prompt.chat.conversations.text_models import TEXT_MODELS
from headwater.prompt.chat.conversations.vision_models import VISION_MODELS

__all__ = ["CONVERSATIONS", "find_conversation"]

CONVERSATIONS: tuple[Conversation, ...] = (*TEXT_MODELS, *VISION_MODELS)


def find_conversation(name: str) -> Conversation | None:
    """The conversation of that name or alias, or None."""
    return next((c for c in CONVERSATIONS if name in (c.name, *c.aliases)), None)
