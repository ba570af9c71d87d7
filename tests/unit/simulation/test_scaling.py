"""Replicas take their time from state to state, policies decide as their systems do, and misses are told apart."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dyorc.cli.simulate import app
from dyorc.errors import InternalError, InvalidInputError
from dyorc.scaling.model import Bounds, Cost, DesiredReplicas, LeadTimes, ProgramLoad, ReplicaCounts
from dyorc.simulation.scaling.policies.keda import Keda
from dyorc.simulation.scaling.policies.knative import Knative
from dyorc.simulation.scaling.policies.ray_serve import RayServe, RayServeOptions
from dyorc.simulation.scaling.policy_comparison import compare, scaler
from dyorc.simulation.scaling.replay import Replay, Scene, replay
from dyorc.simulation.scaling.scaling_loop import Limits, SimulatedScaler
from dyorc.simulation.scaling.simulated_replicas import StartTimes, State, Timeline
from dyorc.traffic.request_traces import TracedRequest, write_trace

ALWAYS = Bounds(min_warm=0, max_replicas=8)


class Script:
    """Wants the same for every program from given times on: (seconds, warm, parked)."""

    def __init__(self, *steps: tuple[float, int, int]) -> None:
        self._steps = steps

    def decide(self, loads: Sequence[ProgramLoad], now_ns: int) -> Sequence[DesiredReplicas]:
        warm, parked = [step[1:] for step in self._steps if step[0] * 1e9 <= now_ns][-1]
        return [DesiredReplicas(load.program, warm, parked, "as written") for load in loads]


def scripted(requests: Sequence[tuple[float, str]], *steps: tuple[float, int, int], num_first: int = 0) -> Replay:
    """Replays requests between two pages at 0 s and at 100 s."""
    rows = [
        TracedRequest(0.0, "read", 0.5),
        *(TracedRequest(at_s, name, 0.1) for at_s, name in requests),
        TracedRequest(100, "read", 0.5),
    ]
    context = Scene(requests=rows, limits=Limits(num_first=num_first), warm_up_ratio=0.0)
    return replay(context, SimulatedScaler(policy=Script(*steps), interval_s=0.5))


def latency_s(found: Replay, request_id: int) -> float:
    return found.watch.latencies_ns[request_id] / 1e9


def test_a_request_waits_for_the_states_before_warm() -> None:
    """A read alone takes 0.6 s of scan and 0.5 s of summary, and 0.1 ms each way: 1.1004 s."""
    warm = scripted([(50, "read")], (0, 1, 0), num_first=1)
    cold = scripted([(50, "read")], (0, 1, 0), (20, 0, 0), (50, 1, 0), num_first=1)
    parked = scripted([(50, "read")], (0, 1, 0), (20, 0, 1), (50, 1, 0), num_first=1)

    assert latency_s(warm, 2) == pytest.approx(1.1004)
    assert latency_s(cold, 2) == pytest.approx(3.0 + 1.1004)
    assert latency_s(parked, 2) == pytest.approx(0.5 + 1.1004)


def test_seconds_are_counted_by_state() -> None:
    """Three programs. Warm until 20; parked until 50; then 0.5 s until warm again."""
    found = scripted([], (0, 1, 0), (20, 0, 1), (50, 1, 0), num_first=1)

    assert found.timeline.seconds(warm=True) == pytest.approx(3 * (20 + 50), abs=0.1)
    assert found.timeline.seconds(warm=False) == pytest.approx(3 * 30, abs=0.1)
    assert found.num_turns == 3


def test_a_start_is_taken_back_and_one_for_a_parked_replica_goes_on() -> None:
    """Asked for at 10, not wanted at 11: nothing joins. Parked from 12 on takes 2.5 s; warm is wanted at 13: 12 + 3 = 15."""
    found = scripted([(13.0, "read")], (0, 1, 0), (5, 0, 0), (10, 1, 0), (11, 0, 0), (12, 0, 1), (13, 1, 0), num_first=1)

    assert latency_s(found, 2) == pytest.approx(2.0 + 1.1004)


def test_only_the_measured_time_counts() -> None:
    timeline = Timeline(from_ns=10_000_000_000, to_ns=20_000_000_000)
    timeline.moved("net", None, State.WARM, 0)
    timeline.moved("net", State.WARM, State.PARKED, 15_000_000_000)
    timeline.advance(30_000_000_000)

    assert (timeline.seconds(warm=True), timeline.seconds(warm=False)) == (5.0, 5.0)
    assert timeline.totals_at(14_999_999_999) == (1, 0)
    assert timeline.totals_at(15_000_000_000) == (0, 1)


def test_a_policy_may_not_leave_the_bounds() -> None:
    with pytest.raises(InternalError, match="wants 9 warm and 0 parked replicas of"):
        scripted([], (0, 9, 0))


def test_a_policy_may_not_forget_requests() -> None:
    with pytest.raises(InternalError, match="leaves some unanswered"):
        scripted([], (0, 0, 0))


class Driven:
    """One program under a policy: tells it of calls second by second, and gives it the replicas that it all_desired, at once."""

    def __init__(self, policy: RayServe | Keda | Knative, interval_s: float, num_warm: int = 1) -> None:
        self.num_warm = num_warm
        self._policy = policy
        self._interval_s = interval_s
        self._num_steps = 0

    def until(self, end_s: float, num_calls: int) -> list[tuple[float, int]]:
        """Returns when the number of replicas changed, and to how many."""
        changes: list[tuple[float, int]] = []
        while (now_s := self._num_steps * self._interval_s) < end_s:
            load = ProgramLoad(
                program="net",
                bounds=ALWAYS,
                cost=Cost(),
                counts=ReplicaCounts(warm=self.num_warm),
                lead=LeadTimes(0.5, 3.0),
                num_queued=num_calls,
            )
            for desired in self._policy.decide([load], round(now_s * 1e9)):
                self.num_warm = desired.num_warm
                changes.append((round(now_s, 3), desired.num_warm))
            self._num_steps += 1
        return changes


def test_ray_serve_waits_as_long_as_it_says() -> None:
    """8 calls from 100 s on, 2 for each replica. The report at 110 s averages 4 samples of 0 or 1 and 1 to 2 of 8."""
    driven = Driven(RayServe(), 0.1)
    driven.until(100, 2)
    up = driven.until(300, 8)
    down = driven.until(1200, 2)

    assert up[0][0] == pytest.approx(140, abs=0.2)
    assert up[-1][1] == 4
    assert [number for _, number in down] == [1]
    assert down[0][0] >= 900


def test_ray_serve_without_delays_follows_its_reports() -> None:
    driven = Driven(RayServe(RayServeOptions(upscale_delay_s=0, downscale_delay_s=0)), 0.1)
    driven.until(100, 2)

    assert driven.until(300, 8)[0][0] == pytest.approx(110, abs=0.2)
    assert [at_s for at_s, number in driven.until(400, 2) if number == 1] == [pytest.approx(330, abs=0.2)]


def test_ray_serve_skips_its_delays_for_a_program_without_replicas() -> None:
    driven = Driven(RayServe(), 0.1, num_warm=0)

    assert driven.until(50, 0) == []
    assert driven.until(60, 1) == [(50.0, 1)]


def test_ray_serve_goes_to_none_from_one_only() -> None:
    driven = Driven(RayServe(RayServeOptions(downscale_delay_s=60)), 0.1, num_warm=4)

    assert [number for _, number in driven.until(600, 0)] == [1, 0]


def test_keda_doubles_and_keeps_what_it_recommended_for_five_minutes() -> None:
    driven = Driven(Keda(), 15.0)
    up = driven.until(150, 40)
    down = driven.until(900, 2)

    assert [number for _, number in up] == [5, 8]
    assert down[0] == (435.0, 1)


def test_keda_polls_for_work_and_takes_the_last_replica_after_its_cooldown() -> None:
    driven = Driven(Keda(), 15.0, num_warm=0)
    driven.until(15, 0)

    assert driven.until(60, 1) == [(30.0, 1)]
    assert driven.until(900, 0) == [(330.0, 0)]


def test_knative_panics_and_calms_down() -> None:
    """A capacity of 0.7 calls, for none has been measured: eight calls ask for twelve replicas in six seconds."""
    driven = Driven(Knative(), 1.0)
    driven.until(100, 0)
    up = driven.until(110, 8)
    down = driven.until(400, 0)

    assert up[0] == (100.0, 1)
    assert up[-1][1] == 8
    assert up[-1][0] < 110
    assert down[0][0] > 160
    assert driven.num_warm == 0


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four minutes: quiet, then a burst, then quiet."""
    path = tmp_path_factory.mktemp("traces") / "burst.csv"
    times_s = [*range(0, 120, 3), *(120 + at / 12 for at in range(360)), *range(150, 240, 3)]
    write_trace(path, [TracedRequest(at_s, "assist", at % 10 / 10) for at, at_s in enumerate(times_s)])
    return path


def run(*arguments: str) -> str:
    told = CliRunner().invoke(app, ["scaling", *arguments], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return told.output


def test_the_command_compares_policies_and_is_reproducible(trace: Path) -> None:
    policies = ("fixed", "reactive", "predictive", "oracle")
    options = ("--trace", str(trace), *(word for name in policies for word in ("--policy", name)), "--json")
    found = json.loads(run(*options))
    fixed, reactive, predictive, oracle = found["policies"]

    assert json.loads(run(*options)) == found
    assert oracle["cold_misses"] == 0 < reactive["cold_misses"] <= reactive["misses"]
    assert predictive["cold_misses"] < reactive["cold_misses"]
    assert predictive["parked_s"] > 0 == reactive["parked_s"]
    assert found["least_replica_s"] < oracle["warm_s"] < fixed["warm_s"]
    assert reactive["p99_ms"] > oracle["p99_ms"]
    assert fixed["warm_s"] == pytest.approx(4 * 2 * 0.9 * 237, rel=0.01)


def test_the_command_prints_a_table_and_draws_a_picture(trace: Path, tmp_path: Path) -> None:
    text = run("--trace", str(trace), "--policy", "knative", "--picture", str(tmp_path / "picture.png"), "--slo", "1.5")

    assert "assist 1.5 s" in text
    assert "knative" in text
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_replicas_that_are_always_enough_have_no_cold_misses(trace: Path) -> None:
    from dyorc.traffic.request_traces import read_trace

    found = compare(Scene(requests=read_trace(trace)), ["fixed"], num_fixed=8, slo_s=0.5)

    assert found.results["fixed"].cold_misses == 0 < found.results["fixed"].misses


def test_what_is_not_there_is_named(trace: Path) -> None:
    requests = [TracedRequest(0, "assist"), TracedRequest(1, "assits")]

    with pytest.raises(InvalidInputError, match="workflow 'assits', expected one of assist, read"):
        Scene(requests=requests)
    with pytest.raises(InvalidInputError, match="no policy 'orakel'; there are fixed"):
        compare(Scene(requests=requests[:1] * 2 + [TracedRequest(2)]), ["orakel"])
    with pytest.raises(InvalidInputError, match="takes 1 s to be warm"):
        StartTimes(cold_to_warm_s=1, parked_to_warm_s=2)
    with pytest.raises(InvalidInputError, match="no policy that scales"):
        scaler("fixed")
