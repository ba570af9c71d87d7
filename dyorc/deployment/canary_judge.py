"""Whether a version that has a part of the requests gets more of them, or is rolled back. Decides by counts, without I/O."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from dyorc.protocol.canary_rules import CanaryRules
from dyorc.telemetry.version_counts import VersionCounts


class Verdict(StrEnum):
    """What to do now."""

    WAIT = "wait"
    GO_ON = "go_on"
    ROLL_BACK = "roll_back"


class CanaryJudgement(NamedTuple):
    """A verdict, and why, in words."""

    verdict: Verdict
    reason: str


def judge(rules: CanaryRules, version: VersionCounts, default: VersionCounts, step_s: float) -> CanaryJudgement:
    """Judges a version by what was counted since its step began.

    Failures, refusals and differences count as soon as they are more than `min_requests` could have; times once there
    are enough of them.

    Args:
        version: Its counts.
        default: Those of the default version.
        step_s: How long the step has lasted.
    """
    broken_rules = (
        *_failures(rules, version, default),
        *_refusals(rules, version, default),
        *_differences(rules, version),
        *_slowness(rules, version, default),
    )
    for broken in broken_rules:
        return CanaryJudgement(Verdict.ROLL_BACK, broken)
    if missing := list(_missing(rules, version, default)):
        text = " and ".join(missing)
        if step_s >= rules.max_step_s:
            return CanaryJudgement(Verdict.ROLL_BACK, f"only {text} after {step_s:.0f} s (max_step_s)")
        return CanaryJudgement(Verdict.WAIT, text)
    if step_s < rules.min_step_s:
        return CanaryJudgement(Verdict.WAIT, f"{step_s:.0f} of {rules.min_step_s:g} s (min_step_s)")
    return CanaryJudgement(Verdict.GO_ON, _summary(version))


def _failures(rules: CanaryRules, version: VersionCounts, default: VersionCounts) -> Iterator[str]:
    ratio = version.num_failed / max(version.num_requests, rules.min_requests)
    seen = f"{version.num_failed} of {version.num_requests} requests failed ({_codes(version.failures)})"
    limit, increase = rules.errors.max_ratio, rules.errors.max_increase
    if limit is not None and ratio > limit:
        yield f"{seen}, allowed are {limit:.3%} (errors.max_ratio)"
    if increase is not None and default.num_requests >= rules.min_requests:
        usual = default.num_failed / default.num_requests
        if ratio > usual + increase:
            yield f"{seen}, {usual:.3%} of the default's, allowed are {increase:.3%} more (errors.max_increase)"


def _refusals(rules: CanaryRules, version: VersionCounts, default: VersionCounts) -> Iterator[str]:
    ratio = version.num_refused / max(version.num_ended, rules.min_requests)
    seen = f"{version.num_refused} of {version.num_ended} requests were refused ({_codes(version.refusals)})"
    limit, increase = rules.refusals.max_ratio, rules.refusals.increase_limit
    if limit is not None and ratio > limit:
        yield f"{seen}, allowed are {limit:.3%} (refusals.max_ratio)"
    if default.num_ended >= rules.min_requests:
        usual = default.num_refused / default.num_ended
        if ratio > usual + increase:
            yield f"{seen}, {usual:.3%} of the default's, allowed are {increase:.3%} more (refusals.max_increase)"


def _codes(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{code} {number}" for code, number in numbers.items())


def _differences(rules: CanaryRules, version: VersionCounts) -> Iterator[str]:
    limit, needed = rules.differences.max_ratio, rules.differences.min_compared or rules.min_requests
    if limit is not None and version.num_unlike / max(version.num_compared, needed) > limit:
        yield (
            f"{version.num_unlike} of {version.num_compared} copies were answered otherwise or failed, allowed are {limit:.3%} "
            f"(differences.max_ratio); the last: {version.difference}"
        )


def _slowness(rules: CanaryRules, version: VersionCounts, default: VersionCounts) -> Iterator[str]:
    latency = rules.latency
    if version.num_ok < rules.min_requests:
        return
    for name, part, factor, limit_s in (
        ("p50", 0.5, latency.max_p50_factor, latency.max_p50_s),
        ("p99", 0.99, latency.max_p99_factor, latency.max_p99_s),
    ):
        own, usual = version.latency_ms(part), default.latency_ms(part)
        if own is None:
            continue
        if limit_s is not None and own > limit_s * 1000:
            yield f"{name} is {own:.3g} ms, allowed are {limit_s * 1000:g} ms (latency.max_{name}_s)"
        if factor is not None and usual and default.num_ok >= rules.min_requests and own > factor * usual:
            yield (
                f"{name} is {own:.3g} ms, {own / usual:.3g} times the default's {usual:.3g} ms, "
                f"allowed are {factor:g} times (latency.max_{name}_factor)"
            )


def _missing(rules: CanaryRules, version: VersionCounts, default: VersionCounts) -> Iterator[str]:
    """Yields what there is not enough of yet."""
    latency, needed = rules.latency, rules.min_requests
    times_matter = any(limit is not None for limit in (latency.max_p50_s, latency.max_p99_s))
    compares_times = latency.max_p50_factor is not None or latency.max_p99_factor is not None
    num = version.num_ok if times_matter or compares_times else version.num_requests
    if num < needed:
        yield f"{num} of {needed} requests (min_requests)"
    num_default = default.num_ok if compares_times else default.num_requests
    if (compares_times or rules.errors.max_increase is not None) and num_default < needed:
        yield f"{num_default} of {needed} requests of the default version (min_requests)"
    if version.num_refused / max(version.num_ended, needed) > rules.refusals.increase_limit and default.num_ended < needed:
        yield f"{default.num_ended} of {needed} requests of the default version, to compare refusals (min_requests)"
    num_copies = rules.differences.min_compared or needed
    if rules.compares and version.num_compared < num_copies:
        yield f"{version.num_compared} of {num_copies} compared copies (differences.min_compared)"


def _summary(version: VersionCounts) -> str:
    text = f"{version.num_ended} requests, {version.num_failed} failed, {version.num_refused} refused"
    if (p50 := version.latency_ms(0.5)) is not None:
        text += f", p50 {p50:.3g} ms, p99 {version.latency_ms(0.99):.3g} ms"
    return text + (f", {version.num_unlike} of {version.num_compared} copies unlike" if version.num_compared else "")
