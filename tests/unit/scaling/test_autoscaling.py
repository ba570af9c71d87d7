"""Ray Serve's options, under their names."""

import warnings
from typing import Any

import pytest

import dyorc
from dyorc.authoring.program import ProgramOptions
from dyorc.errors import DefinitionError
from dyorc.scaling.autoscaling import _CHECKS, bounds_of  # pyright: ignore[reportPrivateUsage]
from dyorc.scaling.model import Bounds

with warnings.catch_warnings(action="ignore"):  # Ray's own, about pydantic
    from ray.serve.config import AutoscalingConfig


def test_every_option_of_ray_serve_is_known() -> None:
    public = {name for name in AutoscalingConfig.model_fields if not name.startswith("_")}
    assert public - set(_CHECKS) == {"policy"}


def test_options_become_bounds() -> None:
    options = {
        "min_replicas": 0,
        "max_replicas": 8,
        "initial_replicas": 2,
        "target_ongoing_requests": 5,
        "upscale_delay_s": 3,
        "downscale_delay_s": 60.0,
        "downscale_to_zero_delay_s": 300,
        "upscaling_factor": 0.5,
        "downscale_smoothing_factor": 0.25,
        "metrics_interval_s": 1,
        "look_back_period_s": 10,
        "aggregation_function": "max",
    }
    assert bounds_of("x", 1, options) == Bounds(
        min_warm=0,
        max_replicas=8,
        initial_warm=2,
        target_calls=5,
        upscale_delay_s=3,
        downscale_delay_s=60.0,
        to_zero_delay_s=300,
        upscaling_factor=0.5,
        downscaling_factor=0.25,
    )


def test_a_number_is_fixed_and_auto_is_what_serve_has() -> None:
    fixed = bounds_of("x", 3, None)
    assert (fixed.min_warm, fixed.max_replicas, fixed.is_fixed) == (3, 3, True)
    serve, ours = AutoscalingConfig.default(), bounds_of("x", "auto", None)
    assert (ours.min_warm, ours.max_replicas) == (serve.min_replicas, serve.max_replicas)
    assert ours.target_calls == serve.target_ongoing_requests
    assert bounds_of("x", "auto", {"max_replicas": 7}).max_replicas == 7
    assert bounds_of("x", "auto", {"max_replicas": 7}).target_calls == 2


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"min_replica": 1}, "no option 'min_replica'.*'min_replicas'"),
        ({"min_replicas": -1}, "min_replicas is -1, expected a whole number of at least 0"),
        ({"min_replicas": 1.5}, "min_replicas is 1.5"),
        ({"max_replicas": 0}, "max_replicas is 0, expected a whole number of at least 1"),
        ({"max_replicas": True}, "max_replicas is True"),
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas is 3, expected at most max_replicas, which is 2"),
        ({"initial_replicas": 5, "max_replicas": 2}, "initial_replicas is 5, expected .* 1 to 2"),
        ({"upscale_delay_s": float("nan")}, "upscale_delay_s is nan"),
        ({"downscale_delay_s": "60"}, "downscale_delay_s is '60', expected seconds"),
        ({"target_ongoing_requests": 0}, "target_ongoing_requests is 0, expected a finite number above 0 \\(no bool\\)"),
        ({"aggregation_function": "median"}, "aggregation_function is 'median', expected one of mean, max, min"),
        ({"policy": {}}, "policy; DyOrc decides itself"),
        ({3: 4}, "no option 3"),
        ([1, 2], "expected a mapping"),
    ],
)
def test_wrong_options_are_named(options: Any, names: str) -> None:
    with pytest.raises(DefinitionError, match=names):
        bounds_of("program 'x'", 1, options)


def test_a_number_and_options_contradict_each_other() -> None:
    with pytest.raises(DefinitionError, match="num_replicas is 3, with autoscaling_config"):
        bounds_of("x", 3, {"max_replicas": 4})


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many", None, True])
def test_a_wrong_number_is_named(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="num_replicas is"):
        bounds_of("x", wrong, None)


def test_a_program_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DefinitionError, match=r"program 'double'.*'max_replica'"):

        @dyorc.program(batched=False, autoscaling_config={"max_replica": 2})
        def double() -> None: ...

    options = ProgramOptions(autoscaling_config={"min_replicas": 0, "max_replicas": 2})
    assert options.bounds == Bounds(min_warm=0, max_replicas=2)
