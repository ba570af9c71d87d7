"""The headers of gRPC calls: what they say, and which are read only once."""

import pytest

from dyorc.gateway import known_heads
from dyorc.gateway.grpc.call_heads import CallHeadCache, Headers, HeadFault, read_call_head

PATH = (b":path", b"/inference.GRPCInferenceService/ModelInfer")
CONTENT_TYPE = (b"content-type", b"application/grpc+proto")
USER_AGENT = (b"user-agent", b"tests")
HEADERS = ((b":method", b"POST"), (b":scheme", b"http"), PATH, CONTENT_TYPE, (b"te", b"trailers"), USER_AGENT)


def test_a_head_says_what_headers_say() -> None:
    more = ((b"grpc-timeout", b"5S"), (b"grpc-encoding", b"gzip"), (b"state-bin", b"AQI"), (b"torn-bin", b"A"), (b"x-a", b"\xff"))
    head = read_call_head(HEADERS + more)
    assert head.path == "/inference.GRPCInferenceService/ModelInfer"
    assert head.fault is None
    assert (head.timeout_s, head.encoding) == (5.0, b"gzip")
    assert head.metadata == (("user-agent", "tests"), ("state-bin", b"\x01\x02"), ("torn-bin", b""), ("x-a", "\xff"))
    assert head.num_bytes == sum(len(name) + len(value) + 32 for name, value in HEADERS + more)


def test_messages_that_are_not_compressed_need_no_encoding() -> None:
    assert read_call_head((*HEADERS, (b"grpc-encoding", b"identity"))).encoding == b""


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ((b"content-type", b"application/json"), HeadFault.NOT_GRPC),
        ((b":method", b"GET"), HeadFault.NOT_A_CALL),
        ((b":method", b"HEAD"), HeadFault.METHOD),
        ((b"te", b"gzip"), HeadFault.NOT_A_CALL),
        *(((b"grpc-timeout", value), HeadFault.TIMEOUT) for value in (b"", b"1", b"S", b"1x", b"-1S", b"1.5S", b"1s")),
    ],
)
def test_what_is_no_call_has_a_fault(header: tuple[bytes, bytes], fault: HeadFault) -> None:
    headers = tuple(each for each in HEADERS if each[0] != header[0])
    assert read_call_head((*headers, header)).fault is fault
    if header[0] != b"grpc-timeout":
        assert read_call_head(headers).fault is not None


@pytest.mark.parametrize(
    ("value", "timeout_s"),
    [
        (b"2H", 7200),
        (b"3m", 0.003),
        (b" 1 S ", 1),
        (b"0000000000001S", 1),
        (b"0S", 0),
        (b"123456789S", None),
        (b"9" * 9000 + b"H", None),
    ],
)
def test_a_time_is_read_as_grpcio_reads_it(value: bytes, timeout_s: float | None) -> None:
    head = read_call_head((*HEADERS, (b"grpc-timeout", value)))
    assert (head.fault, head.timeout_s) == (None, timeout_s)


@pytest.mark.parametrize(
    ("name", "is_named", "is_plain"),
    [(b"x-request-id", True, False), (b"traceparent", True, False), (b"x-priority", False, False), (b"x-other", False, True)],
)
def test_a_head_knows_whether_it_names_its_request(name: bytes, is_named: bool, is_plain: bool) -> None:
    head = read_call_head((*HEADERS, (name, b"1")))
    assert (head.is_named, head.is_plain) == (is_named, is_plain)


def test_equal_headers_are_read_once() -> None:
    cache = CallHeadCache()
    again: Headers = tuple((bytes(bytearray(name)), bytes(bytearray(value))) for name, value in HEADERS)
    assert cache.read(HEADERS) is cache.read(again)
    assert cache.read((*HEADERS, (b"x-a", b"1"))) == read_call_head((*HEADERS, (b"x-a", b"1")))


@pytest.mark.parametrize(
    "header", [(b"grpc-timeout", b"5S"), (b"x-request-id", b"a"), (b"traceparent", b"a"), (b"x-much", b"a" * 4096)]
)
def test_what_differs_for_each_call_is_not_kept(header: tuple[bytes, bytes]) -> None:
    cache = CallHeadCache()
    assert cache.read((*HEADERS, header)) is not cache.read((*HEADERS, header))


def test_heads_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_heads, "_MAX_HEADS", 4)
    cache = CallHeadCache()
    all_headers = [(*HEADERS, (b"x-a", str(number).encode())) for number in range(20)]
    heads = [cache.read(headers) for headers in all_headers]
    again = [cache.read(headers) for headers in reversed(all_headers)][::-1]
    num_kept = sum(first is second for first, second in zip(heads, again, strict=True))
    assert 4 <= num_kept <= 8
