"""The search for the generator's own limit."""

from typing import Any

from loadgen.limit import highest


class Seen:
    """The part of a result that the search looks at."""

    def __init__(self, **figures: Any) -> None:
        vars(self).update(figures)


def result(is_late: bool) -> Any:
    times = Seen(p50=0.1, p90=2.0 if is_late else 0.2, p99=2.0)
    return Seen(
        client_warning="late" if is_late else "",
        counts=Seen(correct=1, planned=1),
        send_delay_ms=times,
        latency_ms=times,
        client_cpu_ratio=0.5,
    )


def test_the_highest_rate_without_a_warning_is_found() -> None:
    lines: list[str] = []
    best, seen = highest(lambda rate_rps: result(rate_rps > 5000), 4000.0, lines.append)

    assert (best, seen["cpu_ratio"]) == (5000.0, 0.5)
    assert ["fine" in line for line in lines] == [True, True, False, False]


def test_a_step_that_fails_once_is_tried_again() -> None:
    tried: list[float] = []

    def measure(rate_rps: float) -> Any:
        tried.append(rate_rps)
        return result(len(tried) == 2 or rate_rps > 7000)

    assert highest(measure, 4000.0, lambda _: None)[0] == 6250.0


def test_every_rate_may_be_too_high() -> None:
    assert highest(lambda _: result(True), 4000.0, lambda _: None) == (0.0, {})
