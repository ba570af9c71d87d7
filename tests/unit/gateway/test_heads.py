"""What headers of requests mean, in `dyorc.gateway.http.heads`."""

import pytest

from dyorc.errors import InvalidInputError
from dyorc.gateway.http.heads import accepts, read_head, sent_priority, sent_timeout_s
from dyorc.gateway.request_ids import caller_in_metadata, ids_in_headers
from dyorc.protocol.header_names import Header

_TRACES = [f"00-{digit * 32}-{digit * 16}-01" for digit in "12"]


def test_of_headers_with_one_name_the_first_counts_everywhere() -> None:
    pairs = [("traceparent", *_TRACES), ("x-request-id", "a", "b"), ("x-priority", "1", "2"), ("request-timeout", "3", "4")]
    headers: list[Header] = [(name.encode(), value.encode()) for name, *values in pairs for value in values]
    head, ids = read_head(headers), ids_in_headers(headers)
    assert head.caller is not None
    assert ids.caller is not None
    assert head.caller.traceparent == ids.caller.traceparent == _TRACES[0]
    assert head.request_id == ids.request_id == "a"
    assert head.priority == sent_priority(headers) == 1
    assert head.timeout_s == sent_timeout_s(headers) == 3
    in_metadata = caller_in_metadata([("traceparent", trace) for trace in _TRACES])
    assert in_metadata is not None
    assert in_metadata.traceparent == _TRACES[0]


@pytest.mark.parametrize(
    ("value", "is_accepted"),
    [
        (b"text/event-stream", True),
        (b"application/json, Text/Event-Stream;q=0.1", True),
        (b"text/event-stream;charset=utf-8", True),
        (b"text/event-stream;q=0", False),
        (b"text/event-stream; Q=0.0, application/json", False),
        (b"text/event-streams", False),
        (b"*/*", False),
        (b"", False),
    ],
)
def test_a_media_type_is_accepted_if_it_is_named_and_not_refused(value: bytes, is_accepted: bool) -> None:
    assert accepts(b"text/event-stream", value) is is_accepted


def test_a_time_limit_that_is_too_long_names_the_bound() -> None:
    with pytest.raises(InvalidInputError, match=r"is '1e18', expected seconds with at most 15 digits, such as 2 or 0.5"):
        read_head([(b"request-timeout", b"1e18")])
