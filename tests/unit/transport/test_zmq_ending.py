"""Ending a ZeroMQ context takes as long as its sockets need, and never for ever."""

import threading

import zmq
from structlog.testing import capture_logs

from dyorc.transport.zmq_link import terminate_context
from tests.deadlines import wait_until


def test_a_context_whose_sockets_are_closed_is_ended() -> None:
    context = zmq.Context()
    context.socket(zmq.DEALER).close(0)
    with capture_logs() as logs:
        terminate_context(context)
    assert context.closed
    assert logs == []


def test_a_thread_that_waits_for_messages_is_woken_and_its_socket_closed() -> None:
    context = zmq.Context()
    socket = context.socket(zmq.REP)
    socket.bind("inproc://asked")

    def wait() -> None:
        try:
            socket.recv()
        except zmq.ContextTerminated:
            socket.close(0)

    waiting = threading.Thread(target=wait)
    waiting.start()
    terminate_context(context)
    waiting.join()
    assert context.closed


def test_a_connection_that_never_ends_does_not_hold_up_the_server() -> None:
    context = zmq.Context()
    open_socket = context.socket(zmq.DEALER)
    with capture_logs() as logs:
        terminate_context(context, patience_s=0.05)
    assert logs == [{"event": "zmq_context_left_open", "log_level": "warning", "waited_s": 0.05}]
    open_socket.close(0)
    wait_until(lambda: context.closed, "it ends once it can")
