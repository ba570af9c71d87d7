"""The reserved parameters of inference requests, for all protocols."""

from collections.abc import Collection, Mapping
from typing import Any

from dyorc.errors import InvalidInputError, UnsupportedError
from dyorc.protocol.parameters import BINARY_DATA_OUTPUT, EXPLAIN, PRIORITY, SEQUENCES, TIMEOUT

RESERVED = frozenset({BINARY_DATA_OUTPUT, EXPLAIN, "headers", PRIORITY, TIMEOUT, *SEQUENCES})
"""Names that are not parameters of models, besides those that begin with `TRITON_PREFIX`."""

_MAX_SHOWN_BITS = 128
_LEAST, _MOST = -(2**63), 2**63 - 1
_MAX_PRIORITY = 2**31 - 1
_MAX_TIMEOUT_US = 2**50


def check_parameters(parameters: Mapping[str, Any], own: Collection[str]) -> None:
    """Checks the protocol's parameters.

    Args:
        own: Names of the model's own parameters, which mean what the model says.

    Raises:
        InvalidInputError: If a number has more than 64 bits, or `binary_data_output` is neither true nor false.
        UnsupportedError: If the request belongs to a sequence.
    """
    for name, value in parameters.items():
        if type(value) is int and not _LEAST <= value <= _MOST:
            shown = value if value.bit_length() <= _MAX_SHOWN_BITS else f"a number of {value.bit_length()} bits"
            raise InvalidInputError(f"parameter {name!r} is {shown}, expected a number from {_LEAST} to {_MOST}")
    flag(parameters, BINARY_DATA_OUTPUT)
    for name in SEQUENCES:
        if name not in own and parameters.get(name, 0) not in (0, ""):  # 0, "" and false say that it belongs to none
            raise UnsupportedError(
                f"parameter {name!r} is {parameters[name]!r}, but no model keeps a state between requests: sequences are not "
                "supported"
            )


def flag(parameters: Mapping[str, Any], name: str, default: bool = False, owner: str = "") -> bool:
    """Returns a parameter that is true or false.

    Args:
        owner: Whose parameter it is, such as ``output 'y'``; empty: the request's.

    Raises:
        InvalidInputError: If it is something else.
    """
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise InvalidInputError(f"parameter {name!r}{f' of {owner}' if owner else ''} is {value!r}, expected true or false")
    return value


def timeout_s_of(parameters: Mapping[str, Any]) -> float | None:
    """Returns the protocol's timeout, which is in microseconds; 0 stands for none.

    Raises:
        InvalidInputError: If it is not such a number.
    """
    timeout = parameters.get(TIMEOUT, 0)
    if not isinstance(timeout, int) or isinstance(timeout, bool) or not 0 <= timeout <= _MAX_TIMEOUT_US:
        raise InvalidInputError(f"parameter 'timeout' is {timeout!r}, expected microseconds, from 0 to {_MAX_TIMEOUT_US}")
    return timeout / 1e6 if timeout else None


def priority_of(parameters: Mapping[str, Any]) -> int:
    """Returns a request's priority: 1 is the highest; 0, the default, stands for none.

    Raises:
        InvalidInputError: If it is not such a number.
    """
    priority = parameters.get(PRIORITY, 0)
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= _MAX_PRIORITY:
        raise InvalidInputError(f"parameter 'priority' is {priority!r}, expected a number from 0 to {_MAX_PRIORITY}")
    return priority
