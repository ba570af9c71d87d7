"""A thread that waits for messages is woken by another."""

import os
import threading
import time

from dyorc.transport.wake_up import WakeUp


def test_it_ends_a_wait_and_is_cleared_once() -> None:
    with WakeUp() as wake:
        assert not wake.wait_beside(None, 0.0)
        assert not wake.clear()
        thread = threading.Timer(0.05, wake.set)
        thread.start()
        started_s = time.monotonic()
        wake.wait_beside(None, 30.0)
        assert time.monotonic() - started_s < 20
        assert wake.is_set
        wake.set()
        thread.join()
        assert wake.clear()
        assert not wake.clear()
        started_s = time.monotonic()
        wake.wait_beside(None, 0.02)
        assert time.monotonic() - started_s >= 0.02, "it was cleared, however often it was set"


def test_it_says_whether_the_descriptor_beside_it_is_readable() -> None:
    with WakeUp() as wake:
        read_end, write_end = os.pipe()
        wake.set()
        assert not wake.wait_beside(read_end, 30.0)
        os.write(write_end, b"x")
        assert wake.wait_beside(read_end, 30.0)
        os.close(read_end)
        os.close(write_end)


def test_setting_it_late_does_nothing() -> None:
    with WakeUp() as wake:
        pass
    wake.set()
    assert not wake.is_set
