"""Fill-in-the-middle prompts."""

import pytest
import tokenizers

from headwater.errors import NotSupported
from headwater.prompt.infill import INFILL_FORMATS, InfillFormat, encode_infill
from headwater.text import Tokenizer
from tests.kit.scripted import byte_level_tokenizer


def tokenizer_of(form: InfillFormat) -> Tokenizer:
    """Bytes, and the control tokens of a format."""
    words = [word for word in (form.prefix, form.suffix, form.middle) if word]
    return Tokenizer(byte_level_tokenizer(special=words))


@pytest.mark.parametrize("form", INFILL_FORMATS, ids=lambda form: form.prefix)
def test_the_order_of_the_parts(form: InfillFormat) -> None:
    """Prefix, suffix, middle; without a middle token the prefix comes last."""
    tokenizer = tokenizer_of(form)
    ids = encode_infill(tokenizer, "ab", "yz")
    text = tokenizer.decode(ids, skip_special_tokens=False)
    if form.middle:
        assert text == f"{form.prefix}ab{form.suffix}yz{form.middle}"
    else:
        assert text == f"{form.suffix}yz{form.prefix}ab"
    assert encode_infill(tokenizer, [97, 98], "yz") == ids


def test_control_tokens_in_the_texts_are_texts() -> None:
    """A file that mentions them cannot move the gap."""
    form = INFILL_FORMATS[0]
    tokenizer = tokenizer_of(form)
    ids = encode_infill(tokenizer, form.middle, form.suffix)
    assert sum(token_id in tokenizer.special_ids for token_id in ids) == 3


def test_the_tokenizers_own_beginning_stays() -> None:
    """BOS comes first, once."""
    raw = byte_level_tokenizer(special=["<s>", "[PREFIX]", "[SUFFIX]"])
    bos = raw.token_to_id("<s>")
    raw.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", bos)]
    )
    ids = encode_infill(Tokenizer(raw), "a", "z")
    assert ids[0] == bos
    assert ids.count(bos) == 1


def test_models_without_the_tokens() -> None:
    """A 400 that names the field."""
    with pytest.raises(NotSupported) as caught:
        encode_infill(Tokenizer(byte_level_tokenizer(special=["<s>"])), "a", "z")
    assert caught.value.param == "suffix"
