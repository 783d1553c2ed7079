"""Messages to bytes and back; MessagePack, typed, never pickled."""

from typing import Generic, TypeVar

import msgspec

from headwater.messages.requests import ToWorker
from headwater.messages.text import ToFrontEnd
from headwater.messages.tokens import ToDetokenizer

__all__ = [
    "DETOKENIZER_CODEC",
    "FRONT_END_CODEC",
    "VERSION",
    "WORKER_CODEC",
    "Codec",
]

# Raised with every change to a struct; a child that greets with another version is refused.
VERSION = 3

T = TypeVar("T")


class Codec(Generic[T]):
    """Encodes and decodes the messages of one direction.

    Args:
        kind: The union of structs that may travel this way.
    """

    def __init__(self, kind: type[T]) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, message: T) -> bytes:
        """The message as MessagePack."""
        return self._encoder.encode(message)

    def decode(self, data: bytes) -> T:
        """The message in `data`.

        Raises:
            msgspec.DecodeError: The bytes are not a message of this direction.
        """
        return self._decoder.decode(data)


WORKER_CODEC: Codec[ToWorker] = Codec(ToWorker)  # type: ignore[arg-type]  # a union is no type
DETOKENIZER_CODEC: Codec[ToDetokenizer] = Codec(ToDetokenizer)
FRONT_END_CODEC: Codec[ToFrontEnd] = Codec(ToFrontEnd)  # type: ignore[arg-type]  # likewise
