"""A Redis that loses what it has accepted is named in the log."""

from pathlib import Path

import redis
import structlog

from dyorc.store.redis import RedisStore
from tests.redis_server import RedisServer


async def _settings_warned_of(url: str) -> list[str]:
    with structlog.testing.capture_logs() as lines:
        async with RedisStore(url) as store:
            await store.num_queued()
            await store.lease("lead")
    return [line["setting"] for line in lines if line["event"] == "redis_loses_data"]


async def test_a_safe_redis_is_not_warned_of() -> None:
    with RedisServer() as server:
        assert await _settings_warned_of(server.url) == []


async def test_each_setting_that_loses_data_is_warned_of_once(tmp_path: Path) -> None:
    with RedisServer(tmp_path, "everysec") as server:
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        assert await _settings_warned_of(server.url) == ["appendfsync everysec", "maxmemory-policy allkeys-lru"]


async def test_a_redis_that_does_not_show_its_settings_is_trusted() -> None:
    with RedisServer() as server:
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            client.execute_command("ACL", "SETUSER", "default", "-config")
        assert await _settings_warned_of(server.url) == []
