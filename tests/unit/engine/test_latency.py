"""The line T(n) = b + a*n, learned from the times of batches."""

import random

import pytest

from dyorc.engine.scheduling.latency import LatencyModel


def learned(base_s: float, item_s: float, noise: float = 0.0, seed: int = 1) -> LatencyModel:
    model, rng = LatencyModel(), random.Random(seed)
    for _ in range(300):
        size = rng.randint(1, 32)
        model.observe(size, (base_s + item_s * size) * rng.uniform(1 - noise, 1 + noise))
    return model


def test_nothing_is_predicted_before_the_first_observation() -> None:
    assert LatencyModel().predict(4) is None
    assert LatencyModel().efficient_size() == 2**30


@pytest.mark.parametrize(("base_s", "item_s"), [(0.01, 0.001), (0.5, 0.0), (0.0, 0.02)])
def test_the_line_is_recovered(base_s: float, item_s: float) -> None:
    assert learned(base_s, item_s).line == pytest.approx((base_s, item_s), abs=1e-9)


def test_the_line_is_recovered_from_noisy_times() -> None:
    assert learned(0.01, 0.001, noise=0.1).line == pytest.approx((0.01, 0.001), rel=0.15)


def test_a_program_that_changes_is_learned_again() -> None:
    model = learned(0.01, 0.001)
    for at in range(600):
        model.observe(1 + at % 32, 0.1 + 0.002 * (1 + at % 32))
    assert model.line == pytest.approx((0.1, 0.002), rel=0.01)


def test_from_one_size_alone_the_mean_is_learned() -> None:
    model = LatencyModel()
    for seconds in (0.1, 0.3, 0.2):
        model.observe(8, seconds)
    assert model.predict(8) == pytest.approx(0.2, rel=0.02)


def test_neither_part_is_ever_negative() -> None:
    falling = LatencyModel()
    for size in (1, 2, 4, 8):
        falling.observe(size, 1.0 / size)
    steep = LatencyModel()
    for size in (1, 2, 4, 8):
        steep.observe(size, 0.01 * size * size)
    assert falling.line is not None
    assert steep.line is not None
    assert min(*falling.line, *steep.line) >= 0


def test_rounding_leaves_no_base_below_zero() -> None:
    model = LatencyModel()
    model.observe(8, 0.009)
    model.observe(4, 0.003)
    assert model.line is not None
    assert str(model.line[0]) == "0.0"  # `dyorc top` showed -0


def test_a_replica_without_observations_is_expected_to_be_like_the_others() -> None:
    replica = LatencyModel(prior=learned(0.01, 0.001))
    assert replica.predict(10) == pytest.approx(0.02)
    replica.observe(10, 0.04)  # twice as slow as the others
    assert replica.line == pytest.approx((0.02, 0.002))


def test_the_efficient_size_is_b_over_a() -> None:
    assert learned(0.012, 0.001).efficient_size() in (12, 13)


def test_the_line_follows_what_is_seen_after_it_was_read() -> None:
    model = learned(0.01, 0.001)
    before = model.predict(4)
    for _ in range(300):
        model.observe(4, 1.0)
    assert before == pytest.approx(0.014)
    assert model.predict(4) == pytest.approx(1.0, rel=0.05)
