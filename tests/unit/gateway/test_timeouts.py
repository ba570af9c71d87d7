"""Waiting queues: they notice whose time is up, without checking everybody."""

from dyorc.config import GatewayConfig
from dyorc.gateway.http.timeouts import TimeoutQueue, Timeouts
from tests.manual_clock import ManualClock


class Client:
    """Notes when its time was up."""

    def __init__(self) -> None:
        self.told: list[tuple[TimeoutQueue, float]] = []

    def time_is_up(self, queue: TimeoutQueue, now_s: float) -> None:
        """Notes it, and stays."""
        self.told.append((queue, now_s))


def test_a_client_is_told_when_its_rooms_time_is_up_and_not_before() -> None:
    clock = ManualClock(0.0)
    patience = Timeouts(GatewayConfig(header_timeout_s=10, idle_timeout_s=75), clock)
    slow, idle = Client(), Client()
    patience.head.enter(slow, 0.0)
    patience.idle.enter(idle, 0.0)
    for at, heads, idles in ((9.9, 0, 0), (10.0, 1, 0), (74.9, 2, 0), (75.0, 3, 1)):
        clock.now_s = at
        patience.sweep()
        assert (len(slow.told), len(idle.told)) == (heads, idles)
    assert slow.told[0] == (patience.head, 10.0)


def test_a_client_that_enters_again_waits_anew_and_one_that_leaves_is_not_told() -> None:
    queue = TimeoutQueue(10)
    first, second, third = Client(), Client(), Client()
    for number, client in enumerate((first, second, third)):
        queue.enter(client, float(number))
    queue.enter(first, 5.0)
    queue.leave(second)
    queue.leave(second)
    assert queue.overdue(12.0) == [third]
    assert queue.overdue(15.0) == [third, first]
    assert len(queue) == 2


def test_a_sweep_stops_at_the_first_client_with_time_left() -> None:
    class Since(float):
        """A time that counts its comparisons."""

        num_looks = 0

        def __rsub__(self, other: float) -> float:
            Since.num_looks += 1
            return other - float(self)

    queue = TimeoutQueue(10)
    for _ in range(10_000):
        queue.enter(Client(), Since(5.0))
    assert queue.overdue(6.0) == []
    assert Since.num_looks == 1


def test_a_client_that_is_gone_is_in_no_room() -> None:
    patience = Timeouts(GatewayConfig(), ManualClock(0.0))
    client = Client()
    queues = (patience.idle, patience.head, patience.body, patience.writing, patience.closing, patience.refused)
    for queue in queues:
        queue.enter(client, 0.0)
    patience.forget(client)
    assert [len(queue) for queue in queues] == [0] * 6
