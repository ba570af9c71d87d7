"""Headers that a user gives a client."""

from typing import Any

import pytest

from dyorc.client.http import ServerEndpoint


def headers_of(headers: dict[Any, Any]) -> dict[str, str]:
    """Returns the headers of every request."""
    return dict(ServerEndpoint.to("http://server", "key", 1000, headers).headers)


def test_they_go_with_every_request_beside_the_clients_own() -> None:
    headers = headers_of({"X-Session-Id": "7 and more"})
    assert headers["x-session-id"] == "7 and more"
    assert headers["authorization"] == "Bearer key"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("Authorization", "x", "is set by the client itself"),
        ("Host", "x", "is set by the client itself"),
        ("Content-Length", "7", "is set by the client itself"),
        ("x session", "7", "is no name of a header"),
        ("", "7", "is no name of a header"),
        ("x-session", "7\r\nx-other: 8", "holds characters other than"),
        ("x-session", "ü", "holds characters other than"),
        ("x-session", 7, "header 'x-session' is 7, expected a text"),
        (7, "x", "header 7 is 'x', expected a text"),
        (b"x-session", b"7", "expected a text for its name"),
    ],
)
def test_what_cannot_be_sent_is_refused(name: Any, value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        headers_of({name: value})
