"""Chat messages to prompt text and ids."""

from headwater.prompt.chat.choose import load_formats
from headwater.prompt.chat.conversations import CONVERSATIONS, Conversation, find_conversation
from headwater.prompt.chat.encode import encode_chat, guard_messages
from headwater.prompt.chat.format import ChatFormat, ContentFormat, RenderedChat
from headwater.prompt.chat.messages import normalize_messages
from headwater.prompt.chat.prompts import ChatPrompt, ChatPrompts
from headwater.prompt.chat.template import ChatTemplate

__all__ = [
    "CONVERSATIONS",
    "ChatFormat",
    "ChatPrompt",
    "ChatPrompts",
    "ChatTemplate",
    "ContentFormat",
    "Conversation",
    "RenderedChat",
    "encode_chat",
    "find_conversation",
    "guard_messages",
    "load_formats",
    "normalize_messages",
]
