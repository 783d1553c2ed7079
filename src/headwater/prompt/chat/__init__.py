"""Chat messages to prompt text and ids."""

from headwater.prompt.chat.encode import encode_chat, guard_messages
from headwater.prompt.chat.messages import normalize_messages
from headwater.prompt.chat.template import ChatTemplate

__all__ = ["ChatTemplate", "encode_chat", "guard_messages", "normalize_messages"]
