"""A decision's function does what it would have done when it was asked."""

from collections.abc import Callable
from typing import Any

from dyorc.authoring.decisions import freeze


def test_variables_keep_their_values() -> None:
    limit = 1
    frozen = freeze(lambda value: value > limit)
    limit = 5
    assert frozen(3)


def test_lists_dicts_and_sets_are_copied() -> None:
    seen, by_name, names = [1], {"a": 1}, {"a"}
    frozen = freeze(lambda value: (seen, by_name, names))
    seen.append(2)
    by_name["b"] = 2
    names.add("b")
    assert frozen(0) == ([1], {"a": 1}, {"a"})


def test_functions_that_it_calls_are_frozen_too_also_those_that_call_themselves() -> None:
    limit = 1

    def exceeds(value: int) -> bool:
        return value > limit if value < 100 else exceeds(value - 100)

    frozen = freeze(lambda value: exceeds(value))
    limit = 5
    assert frozen(3)
    assert frozen(103)


def test_a_variable_without_a_value_stays_so() -> None:
    frozen = freeze(lambda value: later if value else None)
    assert frozen(0) is None
    later = 1
    assert later


def test_defaults_are_kept() -> None:
    limit = 1

    def exceeds(value: int, by: int = 2, *, but: int = 0) -> bool:
        return value - but > limit + by

    frozen = freeze(exceeds)
    limit = 10
    assert frozen(4)


def test_what_reads_no_variables_stays_itself() -> None:
    plain: list[Callable[[Any], Any]] = [bool, lambda value: value]
    assert [freeze(function) for function in plain] == plain
