"""When a program's batches run on the event loop."""

from dyorc.cells.inline_rule import InlineRule

LIMIT_S = 0.001
SHORT_S = LIMIT_S / 5


def rule_on_loop() -> InlineRule:
    """Returns the rule for a program that was found to be short."""
    rule = InlineRule(LIMIT_S)
    observe(rule, 8, SHORT_S)
    assert rule.is_inline
    return rule


def observe(
    rule: InlineRule, number: int, wall_s: float, cpu_s: float | None = None, size: int = 1, overlap: float = 1.0
) -> None:
    """Shows the rule a number of equal batches. During a part of their computing time, others compute as well (`overlap`)."""
    cpu_s = wall_s if cpu_s is None else cpu_s
    for _ in range(number):
        rule.observe(size, wall_s, cpu_s, overlap * cpu_s)


def num_until_inline(rule: InlineRule) -> int:
    """Returns how many short batches it takes until the program is on the loop."""
    number = 0
    while not rule.is_inline:
        observe(rule, 1, SHORT_S)
        number += 1
    return number


def test_a_new_program_is_on_its_thread_until_several_batches_were_short() -> None:
    rule = InlineRule(LIMIT_S)
    assert not rule.is_inline
    observe(rule, 7, SHORT_S)
    assert not rule.is_inline
    observe(rule, 1, SHORT_S)
    assert rule.is_inline


def test_a_slow_first_batch_does_not_count() -> None:
    rule = InlineRule(LIMIT_S)
    observe(rule, 1, 500 * LIMIT_S)
    observe(rule, 7, SHORT_S)
    assert rule.is_inline


def test_a_long_program_stays_on_its_thread() -> None:
    rule = InlineRule(LIMIT_S)
    observe(rule, 1000, 2 * LIMIT_S)
    assert not rule.is_inline


def test_a_program_near_the_limit_does_not_move() -> None:
    rule = InlineRule(LIMIT_S)
    observe(rule, 100, 0.8 * LIMIT_S)
    assert not rule.is_inline
    rule = rule_on_loop()
    observe(rule, 100, 0.8 * LIMIT_S)
    assert rule.is_inline


def test_the_largest_batches_that_occur_have_to_be_short_too() -> None:
    rule = InlineRule(LIMIT_S)
    for _ in range(50):
        observe(rule, 3, SHORT_S, size=1)
        observe(rule, 1, 3 * LIMIT_S, size=64)
    assert not rule.is_inline
    observe(rule, 300, SHORT_S, size=1)
    assert rule.is_inline, "large ones do not occur any more"


def test_a_program_that_waits_for_the_interpreter_is_short_all_the_same() -> None:
    rule = InlineRule(LIMIT_S)
    observe(rule, 6, 20 * LIMIT_S, cpu_s=SHORT_S)
    observe(rule, 2, 1.2 * SHORT_S, cpu_s=SHORT_S)
    assert rule.is_inline


def test_a_program_that_always_waits_for_something_else_never_moves() -> None:
    rule = InlineRule(LIMIT_S)
    observe(rule, 1000, 2 * SHORT_S, cpu_s=SHORT_S)
    assert not rule.is_inline


def test_one_batch_whose_wait_does_not_show_moves_no_program() -> None:
    rule = InlineRule(LIMIT_S)
    for _ in range(100):
        observe(rule, 7, 2 * SHORT_S, cpu_s=SHORT_S)
        observe(rule, 1, SHORT_S)
    assert not rule.is_inline


def test_a_program_whose_waits_show_on_the_loop_leaves_it_for_long() -> None:
    rule = rule_on_loop()
    observe(rule, 4, 2 * SHORT_S, cpu_s=SHORT_S)
    assert rule.is_inline, "a few may have waited for the interpreter"
    observe(rule, 1, 2 * SHORT_S, cpu_s=SHORT_S)
    assert not rule.is_inline
    assert num_until_inline(rule) > 1000


def test_a_program_that_stays_never_moves_again() -> None:
    rule = rule_on_loop()
    rule.stay()
    observe(rule, 5000, SHORT_S)
    assert not rule.is_inline
    rule = InlineRule(LIMIT_S, may_move=False)
    observe(rule, 5000, SHORT_S)
    assert not rule.is_inline


def test_a_program_that_sleeps_stays_on_its_thread() -> None:
    rule = InlineRule(LIMIT_S)
    observe(rule, 1000, 20 * LIMIT_S, cpu_s=SHORT_S)
    assert not rule.is_inline


def test_one_long_batch_on_the_loop_moves_it_at_once() -> None:
    rule = rule_on_loop()
    observe(rule, 1, 1.5 * LIMIT_S)
    assert not rule.is_inline
    rule = rule_on_loop()
    observe(rule, 1, 5 * LIMIT_S, cpu_s=SHORT_S)
    assert not rule.is_inline, "it holds the loop up, whatever it does"


def test_one_batch_that_was_interrupted_by_the_system_does_not_move_it_and_a_second_does() -> None:
    rule = rule_on_loop()
    observe(rule, 1, 3 * LIMIT_S, cpu_s=SHORT_S)
    assert rule.is_inline
    observe(rule, 1, 3 * LIMIT_S, cpu_s=SHORT_S)
    assert not rule.is_inline


def test_a_program_that_comes_and_goes_comes_ever_less_often() -> None:
    rule = InlineRule(LIMIT_S)
    waits: list[int] = []
    for _ in range(10):
        waits.append(num_until_inline(rule))
        observe(rule, 1, 2 * LIMIT_S)
    assert waits[:3] == [8, 16, 32]
    assert waits[-1] == 1024
    num_until_inline(rule)
    observe(rule, 256, SHORT_S)
    observe(rule, 1, 2 * LIMIT_S)
    assert num_until_inline(rule) == 16, "it was right for long"


def test_a_limit_of_zero_keeps_everything_on_threads() -> None:
    rule = InlineRule(0.0)
    observe(rule, 100, 1e-6)
    assert not rule.is_inline


def test_a_longer_program_moves_too_if_it_and_the_loop_only_take_turns() -> None:
    rule = InlineRule(LIMIT_S)
    observe(rule, 31, 3 * LIMIT_S, overlap=0.2)
    assert not rule.is_inline, "a few batches say little about that"
    observe(rule, 1, 3 * LIMIT_S, overlap=0.2)
    assert rule.is_inline
    observe(rule, 1000, 3.5 * LIMIT_S)
    assert rule.is_inline
    observe(rule, 1, 4.5 * LIMIT_S)
    assert not rule.is_inline


def test_a_much_longer_one_does_not() -> None:
    rule = InlineRule(LIMIT_S)
    observe(rule, 1000, 5 * LIMIT_S, overlap=0.0)
    assert not rule.is_inline


def test_a_longer_program_that_waits_for_something_else_does_not() -> None:
    rule = InlineRule(LIMIT_S)
    observe(rule, 1000, 4 * LIMIT_S, cpu_s=2 * LIMIT_S, overlap=0.0)
    assert not rule.is_inline


def test_a_longer_program_with_a_device_of_its_own_does_not() -> None:
    rule = InlineRule(LIMIT_S, can_stretch=False)
    observe(rule, 1000, 3 * LIMIT_S, overlap=0.0)
    assert not rule.is_inline
    observe(rule, 300, SHORT_S, overlap=0.0)
    assert rule.is_inline, "a short one does"


def test_a_longer_program_is_tried_on_its_thread_now_and_then() -> None:
    rule = InlineRule(LIMIT_S)
    observe(rule, 32, 3 * LIMIT_S, overlap=0.0)
    observe(rule, 16_383, 3 * LIMIT_S)
    assert rule.is_inline
    observe(rule, 1, 3 * LIMIT_S)
    assert not rule.is_inline
    observe(rule, 1000, 3 * LIMIT_S, overlap=0.8)
    assert not rule.is_inline, "by now others compute beside it"


def test_a_short_program_is_not_tried_there() -> None:
    rule = rule_on_loop()
    observe(rule, 20_000, SHORT_S)
    assert rule.is_inline
