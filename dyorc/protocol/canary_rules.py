"""The rules by which a version that gets more and more of the requests is promoted or rolled back (`dyorc deploy --judge`).

Clients read them from a file of TOML, and the server reads them again.
"""

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from dyorc.errors import ConfigurationError, InvalidInputError
from dyorc.system.toml_text import read_toml

_Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=sys.float_info.max)]
_Ratio: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Percent: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=100)]

USUAL_REFUSALS = 0.1
"""By how much the ratio of refused requests may grow where no rule says so: clients err, but not with one version only."""


class LatencyRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long answered requests may take: the median, and the 99th percentile.

    Attributes:
        max_p50_factor: How many times as long as those of the default version.
        max_p50_s: In seconds.
    """

    max_p50_factor: _Positive | None = None
    max_p99_factor: _Positive | None = None
    max_p50_s: _Positive | None = None
    max_p99_s: _Positive | None = None


class FailureRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How many requests may fail, but for errors of their clients.

    Attributes:
        max_ratio: Of the version's requests.
        max_increase: By how much its ratio may be above that of the default version.
    """

    max_ratio: _Ratio | None = None
    max_increase: _Ratio | None = None


class RefusalRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How many requests may be refused, as errors of their clients.

    Attributes:
        max_ratio: Of the version's requests.
        max_increase: By how much its ratio may be above that of the default version; None: `USUAL_REFUSALS`.
    """

    max_ratio: _Ratio | None = None
    max_increase: _Ratio | None = None

    @property
    def increase_limit(self) -> float:
        """By how much its ratio may be above that of the default version."""
        return USUAL_REFUSALS if self.max_increase is None else self.max_increase


class DifferenceRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How many copies of requests may be answered otherwise, or fail.

    Attributes:
        min_compared: Copies that have to be compared at each step; None: `min_requests`.
    """

    max_ratio: _Ratio | None = None
    min_compared: _Count | None = None


class CanaryRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """When a version gets more requests, and when it is rolled back.

    Attributes:
        steps: Its parts of the requests, one after the other, in per cent; after the last, it gets all.
        min_requests: Requests that it has to end at each step, but for refused ones; for rules that compare it with the
            default version, that, too.
        min_step_s: How long a step lasts at least.
        max_step_s: If it has not seen enough by then, it is rolled back.
    """

    steps: tuple[_Percent, ...] = (10.0, 50.0, 100.0)
    min_requests: _Count = 100
    min_step_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    max_step_s: _Positive = 3600.0
    latency: LatencyRules = LatencyRules()
    errors: FailureRules = FailureRules()
    refusals: RefusalRules = RefusalRules()
    differences: DifferenceRules = DifferenceRules()

    @property
    def compares(self) -> bool:
        """Whether a rule needs copies of requests."""
        return self.differences.max_ratio is not None


def read_rules_file(path: Path) -> dict[str, Any]:
    """Returns the rules in a file, as plain values.

    Raises:
        ConfigurationError: If there are none; names the file and the key.
    """
    try:
        rules = read_toml(path)
        read_rules(rules)
    except (OSError, ValueError) as error:  # an `InvalidInputError` is a ValueError
        raise ConfigurationError(f"{path}: {error}") from error
    return rules


def read_rules(values: Mapping[str, Any]) -> CanaryRules:
    """Returns rules, from plain values.

    Raises:
        InvalidInputError: If they are no rules; names the key.
    """
    _refuse_nulls(values)
    try:
        rules = msgspec.convert(values, CanaryRules)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"canary rules: {_reason_of(str(error), values)}") from None
    if not rules.steps or any(later <= step for step, later in zip(rules.steps, rules.steps[1:], strict=False)):
        raise InvalidInputError(
            f"canary rules: steps is {list(rules.steps)}, expected per cents that grow, such as [10, 50, 100]"
        )
    if rules.min_step_s > rules.max_step_s:
        raise InvalidInputError(
            f"canary rules: min_step_s is {rules.min_step_s:g}, expected at most max_step_s, {rules.max_step_s:g}"
        )
    limits = [*_limits(rules.latency), *_limits(rules.errors), *_limits(rules.refusals), rules.differences.max_ratio]
    if all(limit is None for limit in limits):
        known = ", ".join(name for name in _known_keys("") if "." in name and "min_" not in name)
        raise InvalidInputError(f"canary rules: there is nothing to judge by; expected at least one of {known}")
    return rules


def _refuse_nulls(values: Mapping[str, Any]) -> None:
    """Refuses rules that are null: JSON makes that of infinity on its way to the server, where it would read as no rule."""
    for key, value in values.items():
        parts: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        for name in [key] if value is None else [f"{key}.{name}" for name, part in parts.items() if part is None]:
            raise InvalidInputError(f"canary rules: {name} is None, expected a finite number; leave out what is no rule")


def _limits(rules: LatencyRules | FailureRules | RefusalRules) -> list[float | None]:
    return list(msgspec.structs.asdict(rules).values())


def _reason_of(text: str, values: Mapping[str, Any]) -> str:
    """Returns an error of msgspec with the key as users write it, and what came."""
    problem, _, place = text.partition(" - at `$")
    key = place.strip(".`").partition("[")[0]
    if problem.startswith("Object contains unknown field"):
        name = problem.split("`")[1]
        whole = f"{key}.{name}" if key else name
        return f"{whole!r} is no rule; known are {', '.join(_known_keys(key))}"
    value: Any = values
    for name in key.split(".") if key else []:
        value = value.get(name) if isinstance(value, Mapping) else value
    if value == math.inf:
        return f"{key} is inf, expected a finite number"
    return f"{key or 'the whole'} is {value!r}, {_in_words(problem)}"


def _in_words(problem: str) -> str:
    """Returns what msgspec expected, in the words of who writes TOML; its types are JSON's, and a rule may be left out."""
    text = f"{problem[0].lower()}{problem[1:]}".partition(", got ")[0].replace(" | null", "")
    for kind, words in _KINDS.items():
        text = text.replace(f"`{kind}`", words)
    return text


_KINDS = {"float": "a number", "int": "a whole number", "object": "a table", "array": "an array", "str": "a text"}


def _known_keys(section: str) -> list[str]:
    """Returns the keys of a section, or all."""
    sections = {"latency": LatencyRules, "errors": FailureRules, "refusals": RefusalRules, "differences": DifferenceRules}
    if section in sections:
        return [f"{section}.{name}" for name in sections[section].__struct_fields__]
    own = [name for name in CanaryRules.__struct_fields__ if name not in sections]
    return own + [key for name in sections for key in _known_keys(name)]
