"""What is logged of effects that fail after their requests were answered."""

from structlog.testing import capture_logs

from dyorc.engine.actions import EffectFailed
from dyorc.engine.tallies import EffectsGivenUp
from dyorc.errors import ProgramError
from dyorc.orchestrator.side_effects import EffectLog


def failure(workflow: str = "pay") -> EffectFailed:
    return EffectFailed(1, workflow, "send", ProgramError("send", "OSError", "refused"))


def test_failures_of_one_kind_are_one_line_in_a_while_with_their_number() -> None:
    now_s = 100.0
    with capture_logs() as lines:
        log = EffectLog(lambda: now_s)
        for _ in range(5):
            log.log_failed(failure())
        log.log_failed(failure("refund"))
        now_s = 200.0
        log.log_failed(failure())
    assert [(line["event"], line["workflow"], line.get("num_more")) for line in lines] == [
        ("effect_failed", "pay", None), ("effect_failed", "refund", None), ("effect_failed", "pay", 4),
    ]  # fmt: skip
    assert lines[0]["program"] == "send"
    assert "refused" in lines[0]["error"]


def test_what_a_stop_gives_up_is_a_line_for_what_has_begun_and_one_for_what_has_not() -> None:
    with capture_logs() as lines:
        log = EffectLog()
        log.log_given_up({})
        log.log_given_up({"refund": EffectsGivenUp(1, 2), "pay": EffectsGivenUp(1, 0), "tell": EffectsGivenUp(0, 2)})
    assert [(line["event"], line["num_effects"], line["workflows"]) for line in lines] == [
        ("effects_lost", 2, ["pay", "refund"]), ("effects_not_begun", 4, ["refund", "tell"]),
    ]  # fmt: skip
