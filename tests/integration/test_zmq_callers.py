"""A caller's end over ZeroMQ, as gateways on other machines have it."""

import select
from collections.abc import Sequence

import zmq

from dyorc.config import LinkConfig
from dyorc.transport.column_codec import Frame
from dyorc.transport.zmq_caller import ZmqCallerLink
from tests.deadlines import TIMEOUT_S, wait_until_async


async def test_what_is_sent_after_the_other_end_has_gone_is_dropped_before_that_is_known() -> None:
    """Otherwise the request that was just coming would fail by ZeroMQ's own error."""
    received: list[Sequence[Frame]] = []
    reasons: list[str] = []
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        link = ZmqCallerLink(f"tcp://127.0.0.1:{port}", LinkConfig(), received.append, reasons.append, None)
        link.send([b"hello"])
        await wait_until_async(lambda: router.poll(0), "it is connected")
        router.close()
    # This loop does not run meanwhile, so nothing has told the link that its connection has ended.
    assert select.select([link._monitor.FD], [], [], TIMEOUT_S)[0]
    for _ in range(3):
        link.send([b"lost"])
    await wait_until_async(lambda: reasons, "the end is noticed")
    link.send([b"lost"])
    assert received == []
    link.close()
