"""The reserved parameters of inference requests, for all protocols."""

import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dyorc.errors import InvalidInputError, UnsupportedError
from dyorc.protocol import header_names
from dyorc.protocol.header_names import Header
from dyorc.protocol.parameter_names import BINARY_DATA_OUTPUT, PRIORITY, SEQUENCES, TIMEOUT

_MAX_SHOWN_BITS = 128
_LEAST, _MOST = -(2**63), 2**63 - 1
_MOST_FLOAT = int(sys.float_info.max)
MAX_PRIORITY = 2**31 - 1
_MAX_TIMEOUT_US = 2**50
_MAX_DIGITS = 18
_PRIORITY_HEADER = header_names.PRIORITY.encode()


def check_parameters(parameters: Mapping[str, Any], floats: Collection[str]) -> None:
    """Checks the protocol's parameters.

    Args:
        floats: Names of the model's own parameters that are floats.

    Raises:
        InvalidInputError: If a number is too large, or `binary_data_output` is neither true nor false.
        UnsupportedError: If the request belongs to a sequence.
    """
    for name, value in parameters.items():
        least, most = (-_MOST_FLOAT, _MOST_FLOAT) if name in floats else (_LEAST, _MOST)
        if type(value) is int and not least <= value <= most:
            shown = value if value.bit_length() <= _MAX_SHOWN_BITS else f"a number of {value.bit_length()} bits"
            limits = "a 64-bit float" if name in floats else f"a number from {_LEAST} to {_MOST}"
            raise InvalidInputError(f"parameter {name!r} is {shown}, expected {limits}")
    flag(parameters, BINARY_DATA_OUTPUT)
    for name in SEQUENCES:
        if parameters.get(name, 0) not in (0, ""):  # 0, "" and false say that it belongs to none
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
    """Returns the protocol's timeout, which is in microseconds; 0 means none.

    Raises:
        InvalidInputError: If it is not such a number.
    """
    timeout = parameters.get(TIMEOUT, 0)
    if not isinstance(timeout, int) or isinstance(timeout, bool) or not 0 <= timeout <= _MAX_TIMEOUT_US:
        raise InvalidInputError(f"parameter 'timeout' is {timeout!r}, expected microseconds, from 0 to {_MAX_TIMEOUT_US}")
    return timeout / 1e6 if timeout else None


def priority_of(parameters: Mapping[str, Any]) -> int:
    """Returns a request's priority: 1 is the highest; 0, the default, means none.

    Raises:
        InvalidInputError: If it is not such a number.
    """
    priority = parameters.get(PRIORITY, 0)
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= MAX_PRIORITY:
        raise InvalidInputError(f"parameter 'priority' is {priority!r}, expected a number from 0 to {MAX_PRIORITY}")
    return priority


def priority_in_headers(headers: Iterable[Header]) -> int:
    """Returns the priority that a client asks for in headers or in a call's metadata, with names in lower case; 0 if in none.

    Raises:
        InvalidInputError: If it is malformed.
    """
    return next((priority_in_header(value) for name, value in headers if name == _PRIORITY_HEADER), 0)


def priority_in_header(value: bytes) -> int:
    """Returns a priority, from its header.

    Raises:
        InvalidInputError: If it is malformed.
    """
    if not value.isdigit() or len(value) > _MAX_DIGITS or int(value) > MAX_PRIORITY:
        raise InvalidInputError(f"X-Priority is {value[:40].decode('latin-1')!r}, expected a number from 0 to {MAX_PRIORITY}")
    return int(value)
