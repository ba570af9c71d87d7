# pyright: basic
# Ray ships no complete types.
"""Ray's object store as a peer: two actors of a local Ray, one of which hands tensors to the other.

Ray is started once, by a child process of the benchmark in its own session (`serve_ray`), so that neither its driver's
threads nor a Ctrl-C get in the way; its two ways (`RayPeer`) share it. Even an idle Ray uses some processor time, and all others
are measured beside it.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.focused.transport.hop import Bytes, HopError, Pool, reply_to, time_hops
from benchmarks.focused.transport.processes import Child, receive_json, send_json
from benchmarks.processes import adopt_orphans, end_children

_OBJECT_STORE_BYTES = 512 * 2**20
_INLINE_BYTES = 100 * 1024  # Ray's own limit for arguments that travel inside the call
_END_TIMEOUT_S = 60.0
_ORPHAN_GRACE_S = 10.0


class RayHost:
    """The child process that runs Ray. The first of its users starts it, and the first that stops ends it."""

    def __init__(self) -> None:
        self._child = Child("benchmarks.focused.transport.ray_peers:serve_ray", ends_itself=True, end_timeout_s=_END_TIMEOUT_S)
        self._pipe: Connection | None = None

    def start(self) -> None:
        """Starts Ray, unless it runs."""
        if self._pipe is None:
            self._pipe = self._child.start()
            self._receive()

    def ask(self, *question: str | int) -> Any:
        """Asks the child to measure."""
        assert self._pipe is not None
        send_json(self._pipe, question)
        return self._receive()

    def _receive(self) -> Any:
        assert self._pipe is not None
        try:
            return receive_json(self._pipe)
        except EOFError as error:
            raise HopError("the process that runs Ray has ended; what it said is above") from error

    def stop(self) -> None:
        """Stops Ray and everything that it started."""
        self._pipe = None
        self._child.stop()


class RayPeer:
    """One of the ways of `Producer`: ``ray_actor`` or ``ray_put_get``."""

    def __init__(self, host: RayHost, name: str) -> None:
        self.name = name
        self._host = host

    def start(self) -> None:
        """Starts Ray, unless it runs."""
        self._host.start()

    def time_hops(self, num_bytes: int, num_hops: int) -> list[float]:
        """Makes hops; see `Hop`."""
        return self._host.ask(self.name, num_bytes, num_hops)

    def copies(self, num_bytes: int) -> int | None:
        """One copy, into the store. Arguments up to 100 KiB travel inside the call, through protobuf and gRPC, and are not
        counted."""
        return None if self.name == "ray_actor" and num_bytes <= _INLINE_BYTES else 1

    def stop(self) -> None:
        """Stops Ray."""
        self._host.stop()


class Consumer:
    """The actor that receives tensors."""

    def take(self, array: Bytes) -> bytes:
        """The tensor is the call's argument."""
        return reply_to(array)

    def take_reference(self, references: list[Any]) -> bytes:
        """The tensor is in the store. Its reference comes in a list: Ray would resolve a bare one before the call."""
        import ray

        return reply_to(ray.get(references[0]))


class Producer:
    """The actor that sends tensors."""

    def __init__(self, consumer: Any) -> None:
        import ray

        self._pool = Pool()
        self._ways = {
            "ray_actor": lambda source: ray.get(consumer.take.remote(source)),
            "ray_put_get": lambda source: ray.get(consumer.take_reference.remote([ray.put(source)])),
        }

    def time_hops(self, name: str, num_bytes: int, num_hops: int) -> list[float]:
        """Makes hops; see `Hop`."""
        return time_hops(self._ways[name], self._pool.arrays(num_bytes), num_hops)


def serve_ray(pipe: Connection) -> None:
    """Runs Ray and answers until the pipe is closed; then ends every process that Ray started, and removes its files."""
    adopt_orphans()
    folder = tempfile.mkdtemp(prefix="hop-")  # short: Ray puts Unix sockets deep below it
    try:
        _serve(pipe, folder)
    finally:
        end_children(_ORPHAN_GRACE_S)
        shutil.rmtree(folder, ignore_errors=True)


def _serve(pipe: Connection, folder: str) -> None:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}  # read when Ray is imported
    import ray

    try:
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=_OBJECT_STORE_BYTES,
            _temp_dir=folder,
        )
        producer = ray.remote(Producer).remote(ray.remote(Consumer).remote())
        send_json(pipe, ray.get(producer.time_hops.remote("ray_actor", 1024, 1)))
        while True:
            send_json(pipe, ray.get(producer.time_hops.remote(*receive_json(pipe))))
    finally:
        ray.shutdown()
