"""Token ids to text and back; it loads no torch and knows no process."""

from headwater.text.decode_stream import DecodeStream
from headwater.text.stop_matcher import StopMatcher

__all__ = ["DecodeStream", "StopMatcher"]
