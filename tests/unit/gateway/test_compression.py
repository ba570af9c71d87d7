"""Compressed bodies: correct, bounded, and refused if they are not what they claim to be."""

import asyncio
import contextlib
import gzip
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyorc.errors import CapacityError, InvalidInputError, PayloadTooLargeError
from dyorc.gateway.http.compression import Encoding, accepted_encoding, compress, decompress, encoding_of

_LIMIT = 10_000_000


def _packed(body: bytes, encoding: Encoding) -> bytes:
    return gzip.compress(body) if encoding is Encoding.GZIP else zlib.compress(body)


def _read(body: bytes, encoding: Encoding, max_bytes: int = _LIMIT) -> bytes:
    return asyncio.run(decompress(body, encoding, max_bytes, lambda num_bytes: None))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(1, 2_000), st.sampled_from(Encoding))
@settings(max_examples=60, deadline=None)
def test_compressed_bodies_are_restored(parts: list[bytes], times: int, encoding: Encoding) -> None:
    body = b"".join(parts) * times
    assert _read(_packed(body, encoding), encoding) == body
    found = asyncio.run(compress([memoryview(part * times) for part in parts], encoding))
    if found is not None:
        assert len(found) < len(body)
        joined = b"".join(part * times for part in parts)
        assert (gzip.decompress(found) if encoding is Encoding.GZIP else zlib.decompress(found)) == joined


@given(st.binary(max_size=2_000), st.integers(1, 100), st.sampled_from(Encoding), st.data())
@settings(max_examples=60, deadline=None)
def test_a_stream_that_was_cut_short_is_refused(body: bytes, times: int, encoding: Encoding, data: st.DataObject) -> None:
    packed = _packed(body * times, encoding)
    cut = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(InvalidInputError, match="middle of its"):
        _read(packed[:cut], encoding)


@given(st.binary(max_size=400), st.sampled_from(Encoding))
@settings(max_examples=60, deadline=None)
def test_garbage_is_refused_or_read(body: bytes, encoding: Encoding) -> None:
    with contextlib.suppress(InvalidInputError):
        assert _packed(_read(body, encoding), encoding)


def test_several_gzip_files_are_one_body() -> None:
    big = bytes(range(256)) * 3_000
    assert _read(gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(big), Encoding.GZIP) == b"one" + big


def test_a_body_of_very_many_gzip_files_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="more than 10000 gzip files"):
        _read(gzip.compress(b"") * 10_001, Encoding.GZIP)


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="has 3 more bytes"):
        _read(zlib.compress(b"body") + b"abc", Encoding.DEFLATE)
    with pytest.raises(InvalidInputError, match="not a gzip stream"):
        _read(gzip.compress(b"body") + b"abc", Encoding.GZIP)


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("limit", [1, 70_000, 5_000_000])
def test_no_more_is_unpacked_than_the_limit(encoding: Encoding, limit: int) -> None:
    made: list[int] = []
    with pytest.raises(PayloadTooLargeError, match=f"more than {limit} bytes"):
        asyncio.run(decompress(_packed(bytes(100_000_000), encoding), encoding, limit, made.append))
    assert sum(made) == limit + 1
    exact = _packed(bytes(limit), encoding)
    assert len(_read(exact, encoding, limit)) == limit


def test_room_may_be_refused_while_unpacking() -> None:
    made: list[int] = []

    def grow(num_bytes: int) -> None:
        made.append(num_bytes)
        if sum(made) > 5_000_000:
            raise CapacityError("full")

    with pytest.raises(CapacityError):
        asyncio.run(decompress(gzip.compress(bytes(100_000_000)), Encoding.GZIP, 2**30, grow))
    assert sum(made) < 20_000_000


def test_short_and_incompressible_bodies_stay_as_they_are() -> None:
    assert asyncio.run(compress([b"a" * 1_000], Encoding.GZIP)) is None
    assert asyncio.run(compress([b"a" * 1_024], Encoding.GZIP)) is not None
    assert asyncio.run(compress([zlib.compress(bytes(range(256)) * 50, 9) * 1, bytes(0)], Encoding.GZIP)) is None


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        (b"gzip", Encoding.GZIP),
        (b"deflate", Encoding.DEFLATE),
        (b"gzip, deflate", Encoding.GZIP),
        (b"deflate, gzip;q=0.9", Encoding.DEFLATE),
        (b"deflate ; q=0.2 , gzip ; q=0.1, br", Encoding.DEFLATE),
        (b"GZIP;Q=1.0", Encoding.GZIP),
        (b"x-gzip", Encoding.GZIP),
        (b"*", Encoding.GZIP),
        (b"gzip;q=0, *", Encoding.DEFLATE),
        (b"*;q=0", None),
        (b"gzip;q=0", None),
        (b"identity;q=1, gzip;q=0.5", None),
        (b"identity;q=0.5, gzip;q=0.5", Encoding.GZIP),
        (b"identity;q=0, br", None),
        (b"gzip;q=much", None),
        (b"gzip;q=nan", None),
        (b"br, zstd", None),
        (b"", None),
        (b";;,,=", None),
    ],
)
def test_the_client_chooses_the_encoding(header: bytes, chosen: Encoding | None) -> None:
    assert accepted_encoding(header) is chosen


def test_encodings_are_parsed() -> None:
    assert [encoding_of(name) for name in (b"gzip", b" X-GZIP ", b"Deflate")] == [Encoding.GZIP, Encoding.GZIP, Encoding.DEFLATE]
    assert encoding_of(b"identity") is None
    for name in (b"br", b"gzip, deflate", b"\xff" * 1_000):
        with pytest.raises(InvalidInputError, match="expected gzip, deflate or identity") as caught:
            encoding_of(name)
        assert len(str(caught.value)) < 200
