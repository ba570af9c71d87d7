"""A server's description of a model."""

from collections.abc import Mapping

import msgspec

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.core.tensor import DType, Shape
from dyorc.errors import TransportError
from dyorc.protocol.parameter_names import REPEATABLE, STRUCTURED_VALUES


class TensorMetadata(msgspec.Struct, frozen=True):
    """An input or output.

    Attributes:
        shape: Of one item; -1 means any size.
    """

    name: str
    datatype: DType
    shape: Shape


class ValueMetadata(msgspec.Struct, frozen=True):
    """An input that is a structured value.

    Attributes:
        content: What its bytes are: text, json, bytes, image or file.
        takes_bytes: Whether it is a file, or JSON that may have bytes inside, as base64.
    """

    name: str
    content: str
    takes_bytes: bool


class ModelMetadata(msgspec.Struct, frozen=True):
    """A model's inputs and outputs.

    Attributes:
        properties: Further properties, as texts.
    """

    name: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]
    versions: tuple[str, ...] = ()
    platform: str = ""
    properties: Mapping[str, str] = {}

    @property
    def is_repeatable(self) -> bool:
        """Whether the server says that a request may safely run twice."""
        return self.properties.get(REPEATABLE) == "true"

    def structured_values(self) -> dict[str, ValueMetadata]:
        """Returns the inputs that are structured values, by name; the others are tensors.

        Raises:
            TransportError: If what the server says of them is malformed.
        """
        try:
            values = msgspec.json.decode(self.properties.get(STRUCTURED_VALUES, "[]"), type=list[ValueMetadata])
        except DECODE_ERRORS as error:
            raise TransportError(f"the metadata of {self.name!r} has malformed {STRUCTURED_VALUES}: {error}") from error
        return {value.name: value for value in values}
