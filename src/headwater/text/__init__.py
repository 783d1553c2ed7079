"""Token ids to text and back; it loads no torch and knows no process."""

from headwater.text.decode_stream import DecodeStream, feed_each
from headwater.text.stop_matcher import StopMatcher
from headwater.text.tokenizer import Tokenizer, load_tokenizer

__all__ = ["DecodeStream", "StopMatcher", "Tokenizer", "feed_each", "load_tokenizer"]
