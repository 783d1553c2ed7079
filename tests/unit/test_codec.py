"""The wire format of the messages: golden bytes, and what is refused."""

import msgspec
import pytest

from headwater.messages.codec import DETOKENIZER_CODEC, FRONT_END_CODEC, WORKER_CODEC
from headwater.messages.params import SamplingParams
from headwater.messages.requests import (
    Abort,
    CheckIntegrity,
    FlushCache,
    Generate,
    GetState,
    LogprobSpec,
    Stop,
)
from headwater.messages.text import (
    ControlReply,
    ModelCard,
    Ready,
    TextBatch,
    TextDelta,
    TokenLogprob,
    TokenLogprobs,
)
from headwater.messages.tokens import (
    Finish,
    InputLogprobs,
    Opening,
    PositionLogprobs,
    TokenBatch,
    TokenOutput,
)

GENERATE = Generate(
    7, "r", [1, 2], SamplingParams(max_new_tokens=3, stop=["é"]), LogprobSpec(0, 2, [5], True)
)
OPENING = Opening([1], True, True, ["x"], [], False, 0, False, True, 1)
POSITION = PositionLogprobs((-0.5, 3), [(-0.25, 4)], None)
OUTPUT = TokenOutput(
    7, [3], Finish("length", length=1), 0, 0, OPENING, InputLogprobs([POSITION]), [POSITION]
)
DELTA = TextDelta(
    7,
    "né",
    [3],
    Finish("stop", matched="x"),
    output_logprobs=[TokenLogprobs(TokenLogprob(-0.5, 3, "n", b"n"))],
)
CARD = ModelCard(
    architecture="A",
    model_type="a",
    vocab_size=2,
    context_length=3,
    eos_token_ids=[1],
    dtype="float32",
    num_parameters=4,
    weight_bytes=16,
    max_total_tokens=64,
    page_size=16,
    load_time_s=0.5,
)


@pytest.mark.parametrize(
    "message", [GENERATE, Abort([1]), Stop(1, 2), FlushCache(1), CheckIntegrity(2), GetState(3)]
)
def test_messages_to_the_worker_survive_the_wire(message: object) -> None:
    """Every struct of the union decodes to an equal struct."""
    assert WORKER_CODEC.decode(WORKER_CODEC.encode(message)) == message  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        TextBatch([DELTA]),
        Ready(process="worker", version=1, card=CARD),
        ControlReply(seq=1, ok=True, data={"running": 2}),
    ],
)
def test_messages_to_the_front_end_survive_the_wire(message: object) -> None:
    """Every struct of the union decodes to an equal struct."""
    assert FRONT_END_CODEC.decode(FRONT_END_CODEC.encode(message)) == message  # type: ignore[arg-type]


def test_a_token_batch_survives_the_wire() -> None:
    """Nested optional structs come back equal."""
    batch = TokenBatch([OUTPUT])
    assert DETOKENIZER_CODEC.decode(DETOKENIZER_CODEC.encode(batch)) == batch


def test_golden_bytes() -> None:
    """The bytes of these messages do not change without `VERSION` being raised."""
    assert WORKER_CODEC.encode(Stop(7, 2)).hex() == "93a473746f700702"
    assert WORKER_CODEC.encode(Abort([7])).hex() == "93a561626f72749107a761626f72746564"
    batch = TokenBatch([TokenOutput(7, [3], Finish("length", length=1))])
    assert DETOKENIZER_CODEC.encode(batch).hex() == (
        "92a6746f6b656e73919a07910396a66c656e677468c001c0c0c00000c0c0c00000"
    )


def test_a_message_of_the_other_direction_is_refused() -> None:
    """A struct that may not travel this way is a decode error, not an object."""
    with pytest.raises(msgspec.DecodeError):
        WORKER_CODEC.decode(FRONT_END_CODEC.encode(TextBatch([DELTA])))
    with pytest.raises(msgspec.DecodeError):
        WORKER_CODEC.decode(b"\x80\x04nonsense")
