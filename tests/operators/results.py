"""Checks samples, and adds up what came out by operation."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.table import Column, Table

from tests.operators.gathering import has_meaning, has_rule
from tests.operators.meanings import compare
from tests.operators.samples import OperationSample
from tests.operators.ways import ways_of


@dataclass(kw_only=True)
class Result:
    """What is known of one operation.

    Attributes:
        num_samples: How often it was called differently.
        num_with_rule: In how many of these the planners may split it.
        num_ways: In how many ways, all samples together.
        num_exact: In how many samples the verifier's numbers were compared with torch's.
        num_by_equality: In how many samples equal results were looked for.
        num_equal: How many pairs of numbers were compared for that.
        wrong: What was wrong, with the sample.
    """

    num_samples: int = 0
    num_with_rule: int = 0
    num_ways: int = 0
    num_exact: int = 0
    num_by_equality: int = 0
    num_equal: int = 0
    wrong: list[str] = field(default_factory=list[str])


def check(samples: Iterable[OperationSample]) -> dict[str, Result]:
    """Checks rules and definitions on all samples, and returns the results by operation."""
    results: dict[str, Result] = {}
    for sample in samples:
        result = results.setdefault(sample.name, Result())
        result.num_samples += 1
        check_rule(sample, result)
        check_meaning(sample, result)
    return results


def check_rule(sample: OperationSample, result: Result) -> None:
    """Splits an operation in all ways."""
    try:
        if not has_rule(sample):
            return
        result.num_with_rule += 1
        for way, wrong in ways_of(sample):
            result.num_ways += 1
            if wrong:
                result.wrong.append(f"{way}: {wrong}: {sample}")
    except Exception as error:
        result.wrong.append(f"the rule fails, {type(error).__name__}: {error}: {sample}")


def check_meaning(sample: OperationSample, result: Result) -> None:
    """Compares the definition of an operation with torch."""
    comparison = compare(sample) if has_meaning(sample.node.op) else None
    if comparison is None:
        return
    result.num_exact += comparison.is_exact
    result.num_by_equality += not comparison.is_exact
    result.num_equal += comparison.num_equal
    if comparison.wrong:
        result.wrong.append(f"the definition: {comparison.wrong}: {sample}")


def table_of(results: dict[str, Result]) -> Table:
    """A line for each operation."""
    names = ("samples", "with rule", "ways", "exact", "by equality", "pairs", "wrong")
    table = Table("operation", *(Column(name, justify="right") for name in names), box=None)
    for name, r in sorted(results.items()):
        cells = (r.num_samples, r.num_with_rule, r.num_ways, r.num_exact, r.num_by_equality, r.num_equal, len(r.wrong))
        table.add_row(name, *map(str, cells))
    return table


def json_of(results: dict[str, Result], with_rule: Iterable[str], with_meaning: Iterable[str]) -> dict[str, Any]:
    """The sums, and what is not covered."""
    split = {name for name, result in results.items() if result.num_with_rule}
    compared = {name for name, result in results.items() if result.num_exact + result.num_by_equality}
    rules, meanings = set(with_rule), set(with_meaning)
    return {
        "check": "operators",
        "rules": len(rules),
        "rules_with_samples": len(rules & split),
        "rules_without_samples": sorted(rules - split),
        "definitions": len(meanings),
        "definitions_with_samples": len(meanings & compared),
        "definitions_without_samples": sorted(meanings - compared),
        "samples": sum(result.num_samples for result in results.values()),
        "ways": sum(result.num_ways for result in results.values()),
        "exact": sum(result.num_exact for result in results.values()),
        "by_equality": sum(result.num_by_equality for result in results.values()),
        "pairs": sum(result.num_equal for result in results.values()),
        "failures": sum(len(result.wrong) for result in results.values()),
        "wrong": {name: result.wrong[:3] for name, result in results.items() if result.wrong},
    }
