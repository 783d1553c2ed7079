"""Long texts take the library's batch way, which lets other threads run."""

import tokenizers

from headwater.text import Tokenizer
from tests.kit.scripted import byte_level_tokenizer


def test_the_batch_way_gives_the_same_ids() -> None:
    """With special tokens' texts, as tokens and as words."""
    text = "hello <|sep|>, née 中文  " * 500
    raw = byte_level_tokenizer(["he", "ll"])
    tokenizer = Tokenizer(raw)
    assert tokenizer.encode(text) == raw.encode(text).ids
    assert tokenizer.encode_plain(text) == tokenizer.encode_plain(text[: len(text) // 500]) * 500


def test_a_long_text_does_not_hold_the_interpreter() -> None:
    """`encode` would: every stream of the server would stand still."""
    raw = byte_level_tokenizer()

    class Spy:
        """Has the batch way only."""

        def no_truncation(self) -> None: ...

        def no_padding(self) -> None: ...

        def encode_batch_fast(
            self, texts: list[str], *, add_special_tokens: bool
        ) -> list[tokenizers.Encoding]:
            return list(raw.encode_batch_fast(texts, add_special_tokens=add_special_tokens))

    text = "a" * 5000
    assert Tokenizer(Spy()).encode(text) == raw.encode(text).ids  # type: ignore[arg-type]
