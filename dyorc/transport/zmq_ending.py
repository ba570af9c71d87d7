"""The end of a ZeroMQ context.

`zmq_ctx_term` waits until every connection is taken apart, however long its sockets may linger. A connection that breaks while
ZeroMQ does that can keep it waiting for ever (https://github.com/zeromq/libzmq/issues/2586 and 4407): a server that was told to
stop would not.
"""

import threading

import structlog
import zmq

_log = structlog.get_logger("dyorc.transport")

_PATIENCE_S = 5.0


def terminate_context(context: "zmq.Context[zmq.Socket[bytes]]", patience_s: float = _PATIENCE_S) -> None:
    """Ends a context whose sockets have been closed, or are closed by threads that this wakes.

    Args:
        patience_s: How long what is sent may linger, at most. What then is still open ends with the process.
    """
    ending = threading.Thread(target=context.term, name="dyorc-zmq-ending", daemon=True)
    ending.start()
    ending.join(patience_s)
    if ending.is_alive():
        _log.warning("zmq_context_left_open", waited_s=patience_s)
