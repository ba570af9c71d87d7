"""A server's description of a model."""

from collections.abc import Mapping

import msgspec

from dyorc.core.tensor import DType, Shape
from dyorc.protocol.parameter_names import REPEATABLE


class TensorMetadata(msgspec.Struct, frozen=True):
    """An input or output.

    Attributes:
        shape: Of one item; -1 means any size.
    """

    name: str
    datatype: DType
    shape: Shape


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
