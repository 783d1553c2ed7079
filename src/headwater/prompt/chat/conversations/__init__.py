"""Registered conversation formats."""

from headwater.prompt.chat.conversations.conversation import Conversation, Style
from headwater.prompt.chat.conversations.table import CONVERSATIONS, find_conversation

__all__ = ["CONVERSATIONS", "Conversation", "Style", "find_conversation"]
