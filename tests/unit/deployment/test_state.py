"""What can be done with the versions of a model, and the way back."""

import pytest

from dyorc.authoring.bundles import Bundle, ModuleSource
from dyorc.deployment.state import DeploymentState, ModelHistory, TrafficAssignment, Version, check_share, next_version
from dyorc.errors import ConflictError, InvalidInputError, UnknownModelError


def version(name: str) -> Version:
    bundle = Bundle("/app.py:flow", "app", {"app": ModuleSource("/app.py", f"VERSION = {name!r}")})
    return Version(model="flow", version=name, bundle=bundle, names={"double": f"double@{name}"})


FIRST = ModelHistory.starting_with(version("1"), origin="/app.py:flow")


def test_a_version_with_all_requests_is_the_default_and_the_way_leads_back() -> None:
    second = FIRST.with_version(version("2"), 1.0)
    assert second.now == TrafficAssignment("2")
    third = second.with_version(version("3"), 1.0)
    assert third.roll_back().now == TrafficAssignment("2")
    assert third.roll_back().roll_back().now == TrafficAssignment("1")
    assert set(third.versions) == {"1", "2", "3"}
    assert set(third.roll_back().versions) == {"1", "2"}, "no way leads back to it"
    with pytest.raises(ConflictError, match="no earlier deployment"):
        FIRST.roll_back()


def test_a_canary_gets_a_share_more_or_all_or_leaves() -> None:
    canary = FIRST.with_version(version("2"), 0.1)
    assert canary.now == TrafficAssignment("1", {"2": 0.1})
    assert canary.loaded_names() == ("1", "2")
    more = canary.with_version(version("2"), 0.5)
    assert more.now == TrafficAssignment("1", {"2": 0.5})
    assert more.with_version(version("2"), 1.0).now == TrafficAssignment("2")
    assert more.roll_back().roll_back().now == TrafficAssignment("1")
    assert canary.without_version("2").now == TrafficAssignment("1")
    assert canary.with_version(version("2"), 0.1).past == canary.past, "nothing has changed"


def test_versions_without_a_share_stay_when_the_default_changes() -> None:
    line = FIRST.with_version(version("2"), 0.0).with_version(version("3"), 0.2).with_version(version("4"), 1.0)
    assert line.now == TrafficAssignment("4", {"2": 0.0})


def test_what_contradicts_itself_is_refused() -> None:
    canary = FIRST.with_version(version("2"), 0.6)
    with pytest.raises(ConflictError, match=r"add up to 1\.1"):
        canary.with_version(version("3"), 0.5)
    with pytest.raises(ConflictError, match="is the default version and receives the remaining"):
        canary.with_version(version("1"), 0.5)
    with pytest.raises(ConflictError, match=r"'1' is the default.*\['2'\]"):
        canary.without_version("1")
    with pytest.raises(UnknownModelError, match=r"'7' is not loaded; loaded are \['1', '2'\]"):
        canary.without_version("7")
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(InvalidInputError, match="from 0 to 1"):
            check_share(share)


def test_a_model_can_be_unloaded_and_come_back() -> None:
    gone = FIRST.without_version("1")
    assert gone.now is None
    assert gone.loaded_names() == ()
    assert gone.roll_back().now == TrafficAssignment("1")
    assert gone.without_versions() is gone
    assert gone.with_version(version("2"), 0.1).now == TrafficAssignment("2"), "there is nobody to share with"


def test_the_way_back_has_an_end() -> None:
    line = FIRST
    for number in range(2, 60):
        line = line.with_version(version(str(number)), 1.0)
    assert len(line.past) == 16
    assert len(line.versions) == 17
    assert next_version(line) == "60"
    assert next_version(None) == "1"


def test_no_number_is_given_twice() -> None:
    line = FIRST
    for number in ("2", "3", "4"):
        assert next_version(line) == number
        line = line.with_version(version(number), 0.1).roll_back()
        assert set(line.versions) == {"1"}
    state = DeploymentState().with_history("flow", line)
    assert next_version(DeploymentState.of_json(state.to_json()).lines["flow"]) == "5", "nor after a restart"
    named = line.with_version(version("blue"), 0.1).with_version(version("9" * 20), 0.1).without_versions()
    assert next_version(named) == "5"
    assert DeploymentState.of_json(DeploymentState().with_history("flow", named).to_json()).lines["flow"] == named


def test_a_record_survives_as_text() -> None:
    record = DeploymentState().with_history("flow", FIRST.with_version(version("2"), 0.25))
    again = DeploymentState.of_json(record.to_json())
    assert again == record
    assert again.number == 1
    assert again.history_of("flow").versions["2"].bundle.digest == version("2").bundle.digest
    with pytest.raises(UnknownModelError, match=r"nothing is deployed as 'other'; deployed are \['flow'\]"):
        record.history_of("other")
