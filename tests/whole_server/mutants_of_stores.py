"""Mistakes made on purpose in stores and deployments, each by its name; see `mutants`."""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from dyorc.cluster import remote_backend
from dyorc.cluster.cluster_messages import OffersUpdate
from dyorc.deployment import deployer, state
from dyorc.store import redis, sqlite_notes
from dyorc.store.base import NoteFence

STORE_MUTANTS: dict[str, Callable[[], None]] = {}
"""By name, what makes the mistake in this process."""

_LATE_S = 1.0


def _mutant(make: Callable[[], None]) -> Callable[[], None]:
    STORE_MUTANTS[make.__name__] = make
    return make


@_mutant
def early_deploy() -> None:
    """A deploy is acknowledged a second before it is stored."""
    made: Any = deployer.Deployer
    begin = made.__init__

    def patched_init(self: Any, versions: Any, peers: Any, config: Any, targets: Any, keep: Any, **options: Any) -> None:
        async def keep_later(text: bytes) -> None:
            async def later() -> None:
                await asyncio.sleep(_LATE_S)
                await keep(text)

            self.late = asyncio.get_running_loop().create_task(later())

        begin(self, versions, peers, config, targets, keep_later, **options)

    made.__init__ = patched_init


@_mutant
def unfenced_notes() -> None:
    """A leader that was replaced may still change what is deployed: no store looks at the fence."""
    store: Any = redis.RedisStore
    note = store.note

    async def put(self: Any, name: str, value: bytes, fence: NoteFence | None = None) -> bool:
        return await note(self, name, value)

    store.note = put
    notes: Any = sqlite_notes
    in_file = notes.put
    notes.put = lambda connection, name, value, fence: in_file(connection, name, value, None)


@_mutant
def taken_redis_lease() -> None:
    """Redis gives a lease away while another process holds it."""
    _change_script("_LEASES", "  if owner and tonumber", "  if owner == by and tonumber")


@_mutant
def unfenced_renewal() -> None:
    """Redis renews a lease for its earlier owner, too."""
    _change_script("_LEASES", "fence > number or (fence == number and owner and owner ~= by)", "false")


@_mutant
def unchecked_token() -> None:
    """Redis ends, renews and releases jobs without a look at the claim's token."""
    _change_script("_JOBS", "return found[1] == 'running' and found[2] == token", "return found[1] == 'running'")


@_mutant
def number_given_twice() -> None:
    """The next version gets the number of the last, if no rollback can reach that."""
    module: Any = deployer
    module.next_version = lambda history: (
        "1" if history is None else str(1 + max((int(name) for name in history.versions if name.isdecimal()), default=0))
    )


@_mutant
def forgetful_rollback() -> None:
    """A rollback leads back, and is not written down."""
    history: Any = state.ModelHistory
    roll_back = history.roll_back
    history.roll_back = lambda self: replace(roll_back(self), past=self.past)


@_mutant
def stale_gateway() -> None:
    """A gateway goes on with the versions that it first knew."""
    backend: Any = remote_backend.RemoteBackend
    receive = backend._receive

    def receive_once(self: Any, leader: Any, message: Any, frames: Any) -> None:
        if not isinstance(message, OffersUpdate) or not self.control.deployed:
            receive(self, leader, message, frames)

    backend._receive = receive_once


def _change_script(name: str, text: str, other: str) -> None:
    module: Any = redis
    script = getattr(module, name)
    if text not in script:
        raise ValueError(f"the script {name} has no {text!r}")
    setattr(module, name, script.replace(text, other))
