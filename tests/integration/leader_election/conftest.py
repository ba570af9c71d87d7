"""Settings of stores that several processes may open."""

from pathlib import Path

import pytest

from tests.redis_server import RedisServer


@pytest.fixture(params=["sqlite", "redis"])
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/jobs.sqlite"
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url
