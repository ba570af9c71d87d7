"""Identity of small values, where Python's `==` says yes too often (1, 1.0 and True; 0.0 and -0.0) or no (NaN and NaN).

The engine uses outcomes of decisions and static parameters as keys. Two values that a workflow or program can tell apart must
never share an entry, or one would get the work of the other. Identical means of the same type and equal bit by bit.
"""

import struct
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any

import numpy as np

from dyorc.authoring.signature import StaticValue
from dyorc.errors import bounded

_DOUBLE = struct.Struct("<d")
_SELF_EVIDENT = frozenset((NoneType, bool, int, str, bytes))
"""Types whose values are identical if they are equal and of that type."""


class Exact:
    """A value that is equal only to identical ones.

    Attributes:
        value: As user code made it.
        is_immutable: Whether it is known to stay as it is. Another request may get such a value as a guess; any other object is
            identical only to itself, and belongs to the request that made it.
    """

    __slots__ = ("_hash", "_key", "is_immutable", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        try:
            self._key: Hashable = exact_key(value)
            self.is_immutable = True
        except Exception:  # users' classes may raise anything
            self._key = (_OpaqueObject, id(value))  # `value` keeps it alive, so the id stays its own
            self.is_immutable = False
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self._shown(str)

    def __repr__(self) -> str:
        return self._shown(repr)

    def _shown(self, show: Callable[[Any], str]) -> str:
        try:
            return bounded(show(self.value))
        except Exception:  # users' classes may raise anything
            return f"a {type(self.value).__name__}"


class _OpaqueObject:
    """Marks keys of objects that are compared by their identity as objects."""


def exact(value: Any) -> Hashable:
    """Returns a value as a key for look-ups: itself if its `==` is exact, else an `Exact`."""
    if value is True or value is False or value is None or type(value) is str or type(value) is Exact:
        return value
    return Exact(value)


def plain(value: Any) -> Any:
    """Returns the value from which `exact` made a key."""
    return value.value if type(value) is Exact else value


def is_immutable(value: Any) -> bool:
    """Returns whether an `exact` value is known to stay as it is."""
    return value.is_immutable if type(value) is Exact else True


def exact_key(value: Any) -> Hashable:
    """Returns a key that is equal only for identical values. Made of plain tuples, so it is quick to look up.

    Raises:
        TypeError: If values of this type are of unknown kind: they may be mutable, or differ in hidden state.
    """
    kind = type(value)
    if kind in _SELF_EVIDENT:
        return kind, value
    if kind is float:
        return kind, _DOUBLE.pack(value)
    if kind is tuple or kind is frozenset:  # a set in the order in which a workflow would walk it
        return kind, tuple([exact_key(item) for item in value])
    if kind is complex:
        return kind, _DOUBLE.pack(value.real), _DOUBLE.pack(value.imag)
    if isinstance(value, np.generic):
        return _key_of_numpy(value)
    if isinstance(value, Enum | type) or kind is object:
        return kind, id(value)
    if is_dataclass(kind):
        return _key_of_dataclass(value)
    return _key_of_subclass(value)


def statics_key(statics: tuple[StaticValue, ...]) -> Hashable:
    """Returns a key that calls of one program share if their static parameters are identical.

    Each value has its parameter's type, so `==` is wrong only for zeros and NaN, which are rare.
    """
    for value in statics:
        if value != value or (value == 0 and type(value) is float):
            return exact_key(statics)
    return statics


def same_statics(a: tuple[StaticValue, ...], b: tuple[StaticValue, ...]) -> bool:
    """Returns whether two calls of one program have identical static parameters."""
    return a is b or statics_key(a) == statics_key(b)


def _key_of_numpy(value: np.generic) -> Hashable:
    if value.dtype.hasobject or value.dtype.type is not type(value) or isinstance(value, np.void):  # np.void is mutable
        raise _unknown(value)
    return type(value), value.dtype.str, value.tobytes()


def _key_of_dataclass(value: Any) -> Hashable:
    """Returns the key of a frozen dataclass that holds nothing but its fields. Fields that its `==` ignores count as well."""
    kind: type = type(value)
    parameters = vars(kind).get("__dataclass_params__")
    names = [field.name for field in fields(value)]
    if parameters is None or not parameters.frozen or not parameters.eq or not set(getattr(value, "__dict__", ())) <= set(names):
        raise _unknown(value)
    return kind, tuple([exact_key(getattr(value, name)) for name in names])


def _key_of_subclass(value: Any) -> Hashable:
    """Returns the key of a value of a subclass that adds no attributes, such as a named tuple. Calls none of its methods."""
    kind: type = type(value)
    if getattr(value, "__dict__", None) or any(vars(base).get("__slots__") for base in kind.__mro__):
        raise _unknown(value)
    if isinstance(value, str):
        return kind, str.__str__(value)
    if isinstance(value, int):
        return kind, int.__int__(value)
    if isinstance(value, float):
        return kind, _DOUBLE.pack(float.__float__(value))
    if isinstance(value, bytes):
        return kind, bytes.__getitem__(value, slice(None))
    if isinstance(value, tuple):
        return kind, tuple([exact_key(item) for item in tuple.__iter__(value)])
    raise _unknown(value)


def _unknown(value: Any) -> TypeError:
    return TypeError(f"cannot tell which values of {type(value).__name__} are identical")
