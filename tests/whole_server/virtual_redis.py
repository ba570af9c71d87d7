"""A Redis in a virtual process: fakeredis, which runs the store's scripts in real Lua, behind RESP on virtual connections.

A command is done in one turn, as in Redis, and all of it or nothing is there when its process dies: this one writes its log at
every command (``appendfsync always``).
"""

import _thread
import asyncio
import time
from collections.abc import Sequence
from functools import wraps
from typing import Any

from fakeredis import FakeServer
from fakeredis._clients._tcp_server import encode_reply
from fakeredis._socket._async import AsyncFakeSocket
from redis.asyncio import ConnectionPool, Redis

from tests.whole_server.lua_scripts import KeptScripts, check_globals_at_end
from tests.whole_server.network import VirtualSocket
from tests.whole_server.observed import Observed

PORT = 6379
URL = f"redis://127.0.0.1:{PORT}/0"
_JOB = b"dyorc:{jobs}:job:"
_ENDS = (b"finish", b"release")
"""Steps for the holder of a job's claim alone."""
_LONGEST_LINE = 1 << 16
"""Bytes: redis-py breaks off at a longer one."""


class _OrderedSet(dict[Any, None]):
    """A set in the order of adding: that of a set of objects follows from addresses, which differ from run to run."""

    def add(self, item: Any) -> None:
        self[item] = None

    def remove(self, item: Any) -> None:
        del self[item]

    def discard(self, item: Any) -> None:
        self.pop(item, None)


def _order_connections() -> None:
    """Lets clients close their connections in the order in which they took them."""
    pools: Any = ConnectionPool
    reset = pools.reset

    @wraps(reset)
    def reset_in_order(pool: Any) -> None:
        reset(pool)
        pool._in_use_connections = _OrderedSet()

    pools.reset = reset_in_order


class VirtualRedis:
    """What a Redis keeps, and the processes that serve it, one after the other.

    Args:
        observed: Told of leases, in the store's order.
    """

    def __init__(self, observed: Observed) -> None:
        self.observed = observed
        _order_connections()
        self.server: Any = FakeServer(version=(7, 4))
        check_globals_at_end()
        self.server.lock = _thread.allocate_lock()  # nobody runs, and no process dies, in the middle of a command
        self.server.dbs[0]._change_callbacks = _OrderedSet()

    async def serve(self) -> None:
        """Serves until its process ends."""
        self.server.sockets.clear()
        loop = asyncio.get_running_loop()
        listening: Any = VirtualSocket(PORT)
        await loop.create_server(lambda: _Connection(self), sock=listening)
        await asyncio.Event().wait()

    def job_states(self) -> dict[str, str]:
        """Returns the state of each job."""
        items = self.server.dbs[0]._dict.items()
        return {key[len(_JOB) :].decode(): item.value[b"state"].decode() for key, item in items if key.startswith(_JOB)}

    def claim_of(self, job: str) -> tuple[str, str] | None:
        """Returns the state of a job, and the token of its last claim; None without the job."""
        item = self.server.dbs[0]._dict.get(_JOB + job.encode())
        return None if item is None else (item.value[b"state"].decode(), item.value.get(b"token", b"0").decode())


def encoded(reply: Any, protocol: int) -> bytes:
    """Returns a reply as RESP; a long string with its length in front, as Redis sends it, where fakeredis writes a line."""
    data = encode_reply(reply, protocol)
    return encode_reply(reply, protocol, nested=True) if data[:1] == b"+" and len(data) > _LONGEST_LINE else data


class _Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, redis: VirtualRedis) -> None:
        self._redis = redis
        self._client: _Client
        self._transport: Any
        self._answering: asyncio.Task[None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol.connection_made`."""
        self._transport = transport
        self._client = _Client(self._redis)
        self._answering = asyncio.get_running_loop().create_task(self._answer())

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol.data_received`."""
        self._client.sendall(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol.connection_lost`."""
        self._answering.cancel()
        self._client.close()

    async def _answer(self) -> None:
        client: Any = self._client
        while True:
            self._transport.write(encoded(await client.responses.get(), client._client_info.protocol_version))


class _Client(AsyncFakeSocket):
    """A client as Redis sees it."""

    def __init__(self, redis: VirtualRedis) -> None:
        super().__init__(redis.server, 0, client_class=Redis)
        self._redis = redis
        self._fields: Sequence[bytes] = ()
        self._claim: tuple[str, str] | None = None
        self._is_leaving = False

    def close(self) -> None:
        """Leaves. While a command of this client blocks, fakeredis still needs what `close` takes away."""
        if self._blocked:
            self._is_leaving = True
        else:
            super().close()

    def resume(self) -> None:
        """Goes on after a command that has blocked."""
        if self._is_leaving:
            super().close()
        else:
            super().resume()

    def _get_server_runtime(self, server: Any) -> Any:
        lua = super()._get_server_runtime(server)
        if not isinstance(lua, KeptScripts):
            lua = server._lua_runtime = KeptScripts(lua)
        return lua

    def _process_command(self, fields: list[bytes]) -> None:
        self._fields, info, is_script = fields, self._client_info, fields[0].lower() == b"evalsha"
        version = info.protocol_version
        self._redis.observed.note_time(time.time())
        if is_script:
            info["resp"] = 2  # what commands of a script answer, whatever the client speaks
            self._claim = self._redis.claim_of(fields[5].decode()) if fields[4] in _ENDS else None
        super()._process_command(fields)
        if is_script:
            info["resp"] = version
        self._fields = ()

    def put_response(self, msg: Any) -> None:
        """Sees what a step of a lease or a job has led to.

        They come as ``EVALSHA sha 2 lease fence STEP owner ...`` and ``EVALSHA sha 1 prefix STEP job token ...``.
        """
        fields, now_s, observed = self._fields, time.time(), self._redis.observed
        if len(fields) > 6 and fields[0].lower() == b"evalsha" and b"lease:" in fields[3] and not isinstance(msg, Exception):
            step, owner, name = fields[5], fields[6].decode(), fields[3].rpartition(b"lease:")[2].decode()
            if step == b"acquire" and msg is not None:
                observed.note_acquired(name, owner, int(msg), int(fields[7]) / 1e3, now_s)
            elif step == b"renew" and msg:
                observed.note_renewed(name, owner, int(fields[8]), int(fields[7]) / 1e3, now_s)
            elif step == b"release":
                observed.note_released(name, owner, int(fields[7]))
        if fields and self._claim is not None and (msg == 1 or (isinstance(msg, list) and msg[0] == b"ended")):
            job, token = fields[5].decode(), fields[6].decode()
            if self._claim != ("running", token):
                observed.wrong.append(f"job {job} was ended or released by a lost claim: {token}, Redis has {self._claim}")
        super().put_response(msg)
