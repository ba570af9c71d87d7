"""The size from which shared memory is cheaper: where two measured lines meet, within bounds, whatever the measurement says."""

import socket
from pathlib import Path

import pytest

from dyorc.config import TransportConfig
from dyorc.transport.arena import Arena
from dyorc.transport.arena_views import ArenaView
from dyorc.transport.calibration import limit_for, measure_inline_limit
from dyorc.transport.tensor_path import TensorExchange

LOW, HIGH = 4096, 2**20


@pytest.mark.parametrize(
    ("base_s", "per_byte_s", "message_per_byte_s", "expected"),
    [
        (20e-6, 0.1e-9, 0.3e-9, 40_000),  # 20 us / (2 * 0.3 - 0.1) ns
        (20e-6, 0.0, 1e-9, 10_000),
        (0.0, 0.1e-9, 0.3e-9, LOW),
        (1.0, 0.1e-9, 0.3e-9, HIGH),
        (20e-6, 0.6e-9, 0.3e-9, HIGH),  # a message is never dearer
        (20e-6, 1e-9, 0.0, HIGH),
        (0.0, 0.0, 0.0, HIGH),
    ],
)
def test_the_limit_is_where_the_lines_meet(base_s: float, per_byte_s: float, message_per_byte_s: float, expected: int) -> None:
    assert limit_for(base_s, per_byte_s, message_per_byte_s) == pytest.approx(expected, abs=1)


def test_measuring_leaves_nothing_behind(tmp_path: Path) -> None:
    with Arena(str(tmp_path), 2**20) as arena:
        view = ArenaView(str(tmp_path), arena.name)
        assert LOW <= measure_inline_limit(arena, view) <= HIGH
        assert arena.num_blocks == 0
        view.close()


def test_a_full_arena_does_not_keep_a_process_from_starting(tmp_path: Path) -> None:
    with Arena(str(tmp_path), 2**20) as arena:
        assert arena.allocate(arena.max_block_bytes) is not None
        view = ArenaView(str(tmp_path), arena.name)
        assert LOW <= measure_inline_limit(arena, view) <= HIGH
        view.close()


def test_sockets_with_small_buffers_do_not_keep_a_process_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = socket.socketpair

    def small() -> tuple[socket.socket, socket.socket]:
        pair = make()
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        return pair

    monkeypatch.setattr(socket, "socketpair", small)
    test_measuring_leaves_nothing_behind(tmp_path)


def test_a_limit_that_is_set_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dyorc.transport.tensor_path.measure_inline_limit", lambda arena, view: 12_345)
    config = TransportConfig(arena_folder=str(tmp_path), arena_bytes=2**20)
    for limit, expected in ((None, 12_345), (0, 0), (77, 77)):
        with TensorExchange("own", "here", config.model_copy(update={"inline_limit_bytes": limit})) as own:
            assert own.outbox.inline_limit_bytes == expected
    assert list(tmp_path.iterdir()) == []
