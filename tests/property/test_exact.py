"""Values that are equal in Python and not identical never share an entry; identical ones always do."""

import copy
import math
import struct
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, IntEnum, IntFlag, StrEnum
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dyorc.authoring.exact_values import Exact, exact, is_immutable, plain, same_statics
from dyorc.authoring.signature import StaticValue


class Level(IntEnum):
    LOW = 0
    HIGH = 1


class Mode(IntFlag):
    A = 1
    B = 2


class Name(StrEnum):
    A = "a"


class Plain(Enum):
    ONE = 1


class Text(str):
    __slots__ = ()


class Lying(str):
    """Claims to equal everything."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __str__(self) -> str:
        return "lie"


class Number(int):
    pass


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Choice:
    """A part of it does not count for `==`."""

    size: Any
    label: Any = field(compare=False, default="")


@dataclass(frozen=True, slots=True)
class Slotted:
    size: Any


NUMPY = (np.bool_, np.int8, np.int64, np.uint8, np.float16, np.float32, np.float64)
NUMBERS = (0, 1, 2, -1, 2**53, 2**53 + 1, 0.0, -0.0, 1.0, 2.0, float(2**53), math.nan, -math.nan, math.inf, True, False)

_atoms = st.one_of(
    st.sampled_from(NUMBERS),
    st.builds(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0], st.sampled_from((0x7FF8 << 48, (0x7FF8 << 48) + 1))),
    st.builds(lambda kind, number: kind(number), st.sampled_from(NUMPY), st.sampled_from((0, 1, -0.0, 2))),
    st.sampled_from((*Level, *Mode, Mode.A | Mode.B, *Name, *Plain, Number(1), Number(0), 1 + 0j, 0j, complex(0.0, -0.0), None)),
    st.sampled_from(("", "a", "1", b"a", b"", Text("a"), Lying("a"), Lying("b"), np.str_("a"), np.bytes_(b"a"), int, bool)),
)
_values = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.tuples(inner),
        st.tuples(inner, inner),
        st.builds(Point, inner, inner),
        st.builds(Choice, inner, inner),
        st.builds(Slotted, inner),
        st.frozensets(inner, max_size=2),
    ),
    max_leaves=4,
)


def spelled(value: Any) -> Any:
    """Spells out a value, type by type and bit by bit, as text."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, type):
        return f"type {value.__module__}.{value.__qualname__}"
    if isinstance(value, Enum):
        return f"{kind}.{value.name}"
    if isinstance(value, np.generic):
        return f"{kind} {value.dtype} {value.tobytes().hex()}"
    if isinstance(value, float):
        return f"{kind} {struct.pack('>d', value).hex()}"
    if isinstance(value, complex):
        return f"{kind} {struct.pack('>dd', value.real, value.imag).hex()}"
    if isinstance(value, Choice):
        return f"{kind}({spelled(value.size)}, {spelled(value.label)})"
    if isinstance(value, Slotted):
        return f"{kind}({spelled(value.size)})"
    if isinstance(value, tuple | frozenset):
        return f"{kind}({', '.join([spelled(item) for item in value])})"
    if isinstance(value, str):
        return f"{kind} {str.__repr__(value)}"
    return f"{kind} {value!r}"


@given(_values, _values)
def test_two_values_are_one_entry_if_and_only_if_they_are_identical(a: Any, b: Any) -> None:
    is_identical = spelled(a) == spelled(b)
    assert (exact(a) == exact(b)) is is_identical
    assert (len({exact(a), exact(b)}) == 1) is is_identical
    assert not is_identical or hash(exact(a)) == hash(exact(b))


@given(_values)
def test_a_copy_is_identical(value: Any) -> None:
    assert exact(value) == exact(copy.deepcopy(value))
    assert is_immutable(exact(value))
    assert plain(exact(value)) is value
    assert exact(exact(value)) == exact(value)


_statics = st.one_of(st.booleans(), st.integers(-2, 2), st.sampled_from(NUMBERS), st.sampled_from(("", "0", "1")))


_pairs = st.tuples(_statics, _statics).filter(lambda pair: type(pair[0]) is type(pair[1]))
"""Values of one parameter, which has one type."""


@given(st.lists(_pairs, max_size=3))
def test_static_parameters_are_the_same_if_and_only_if_they_are_identical(pairs: list[tuple[StaticValue, StaticValue]]) -> None:
    a, b = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    assert same_statics(a, b) is (spelled(a) == spelled(b))


class Tagged(str):
    """A text with more to it."""


class Slot(str):
    __slots__ = ("tag",)


@dataclass(unsafe_hash=True)
class Mutable:
    size: int


class Equal:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 1


class Broken:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("never asked")

    def __hash__(self) -> int:
        return 1

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("not readable")


def tagged() -> Hashable:
    text = Tagged("a")
    text.tag = 1  # type: ignore[attr-defined]
    return text


def test_an_object_of_which_nothing_is_known_is_identical_only_to_itself() -> None:
    makers = (tagged, lambda: Slot("a"), lambda: Mutable(1), Equal, Broken, lambda: (1, Equal()), lambda: Choice(Equal()))
    for make in makers:
        a, b = make(), make()
        assert exact(a) == exact(a)
        assert exact(a) != exact(b)
        assert not is_immutable(exact(a))


def test_sentinels_are_identical_to_themselves() -> None:
    low, high = object(), object()
    assert exact(low) != exact(high)
    assert is_immutable(exact(low))
    assert exact(low) == exact(low)


def test_an_exact_value_shows_what_it_stands_for() -> None:
    assert (str(exact(1)), repr(exact(1.0)), str(exact((1, True)))) == ("1", "1.0", "(1, True)")
    assert isinstance(exact(1), Exact)
