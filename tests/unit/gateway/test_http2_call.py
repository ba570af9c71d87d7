"""`Http2Call`: messages that are too large."""

import pytest

from dyorc.gateway.grpc.call_heads import CallHead
from dyorc.gateway.grpc.http2_call import CallError, Http2Call


class _Stream:
    """Takes what a call sends."""

    def acknowledge(self, num_bytes: int) -> None: ...

    async def send_message(self, message: bytes) -> None: ...


@pytest.mark.parametrize("compressed", [b"\0", b"\1"])
def test_a_message_that_is_too_large_is_refused_before_it_comes(compressed: bytes) -> None:
    head = CallHead("/", None, (), is_named=False, is_plain=True, timeout_s=None, encoding=b"gzip", num_bytes=0)
    call = Http2Call(_Stream(), head, None, 1000, is_streaming=False)
    with pytest.raises(CallError, match=r"larger than max \(1001 vs. 1000\)"):
        call.feed(compressed + (1001).to_bytes(4))
