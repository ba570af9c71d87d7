"""Which protocol a target speaks: the option says it, or the URL where the option is left out."""

import pytest

from loadgen.options import TargetOptions


@pytest.mark.parametrize(
    ("url", "chosen", "expected"),
    [
        ("grpc://h:1", "http", "grpc"),
        ("grpcs://h:1", "http", "grpc"),
        ("http://h:1", "http", "http"),
        ("h:1", "grpc", "grpc"),
        ("grpc://h:1", "my.module:target", "my.module:target"),
    ],
)
def test_a_url_names_the_protocol_unless_the_user_does(url: str, chosen: str, expected: str) -> None:
    assert TargetOptions(protocol=chosen).spec(url, "m").protocol == expected
