"""What concerns all processes of a server together: readiness, statistics, the report, and what clients register."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from dyorc.engine.tallies import ModelStatistics
from dyorc.errors import ClientMemoryError, DyOrcError, UnsupportedError
from dyorc.gateway.backend import Backend
from dyorc.gateway.client_device_memory import DeviceRegion, decode_handle, device_of, find_device
from dyorc.gateway.client_memory import ClientMemory, MemoryRegion, RegionKind
from dyorc.gateway.log_control import LogControl
from dyorc.gateway.peer_processes import PeerProcesses
from dyorc.models.status import BEST_FIRST

_REPORT, _STATISTICS, _REGISTER, _UNREGISTER = "report", "statistics", "register", "unregister"
_SCALING, _SCALE, _LOGS = "scaling", "scale", "logs"


class ServerView:
    """Asks the peers, if there are any, and adds up.

    Attributes:
        status: Which programs are ready.

    Args:
        backend: Runs this process's requests.
        clients: The memory that clients share with it.
        peers: The other processes.
        models: Names under which requests are counted; may change.
    """

    def __init__(self, backend: Backend, clients: ClientMemory, peers: PeerProcesses, models: Collection[str] = ()) -> None:
        self._models = models
        self._backend = backend
        self._clients = clients
        self._peers = peers
        self._parts: dict[str, Callable[[], Any]] = {}
        self._logs: LogControl | None = None
        self._scaling: set[asyncio.Task[None]] = set()
        self.status = peers.status(backend.status)
        peers.answer(_REPORT, lambda _: self._report_for_peer())
        peers.answer(_STATISTICS, self._counts)
        self._counted: dict[str, Callable[[], Any]] = {_STATISTICS: self._all_counts}
        self._inherited_of: dict[str, Any] = peers.keep_counts(self._all_counted) or {}
        self._inherited = _statistics_of(self._inherited_of.get(_STATISTICS, {}))
        peers.answer(_SCALING, lambda _: {} if peers.shares_backend else backend.scaling())
        peers.answer(_SCALE, self._scale_here)
        peers.answer(_REGISTER, self._register_here)
        peers.answer(_UNREGISTER, self._unregister_here)

    # Reports

    def add_report_part(self, name: str, report: Callable[[], Any]) -> None:
        self._parts[name] = report

    def add_counts(self, name: str, counts: Callable[[], Any]) -> Any:
        """Adds counts that must not be lost with this process (`PeerProcesses.keep_counts`).

        Returns:
            What its predecessor had counted by that name; None if it has none.
        """
        self._counted[name] = counts
        return self._inherited_of.get(name)

    def _all_counted(self) -> dict[str, Any]:
        own = {name: counts() for name, counts in self._counted.items()}
        return self._inherited_of | own  # some may be registered only later

    async def report(self) -> dict[str, Any]:
        """Returns the current state of all processes together, as plain values; says which did not answer."""
        await self._backend.refresh()
        own = self._own_report()
        replies = await self._peers.ask(_REPORT)
        if not replies.values and not replies.missing:
            return own["report"] | {"pid": own["pid"]}
        each = {self._peers.number: own, **replies.values}
        cells = [
            {"cell": number, "pid": process["pid"]}
            | {name: process["report"][name] for name in ("num_requests", "link") if not self._peers.shares_backend}
            for number, process in each.items()
        ]
        cells += [{"cell": number, "pid": None} for number in replies.missing]
        reports = [
            process["report"] if self._peers.shares_backend else _with_replicas_of(number, process["report"])
            for number, process in each.items()
        ]
        report = add_up_reports(reports)
        return report | {"cells": sorted(cells, key=lambda cell: cell["cell"])}

    def _own_report(self) -> dict[str, Any]:
        parts = {name: report() for name, report in self._parts.items()}
        return {"pid": os.getpid(), "report": self._backend.report() | parts}

    def _report_for_peer(self) -> dict[str, Any]:
        """Returns what another process adds to its own report."""
        if not self._peers.shares_backend:
            return self._own_report()
        return {"pid": os.getpid(), "report": {name: report() for name, report in self._parts.items()}}

    async def statistics(self, names: Sequence[str]) -> list[ModelStatistics]:
        """Returns the statistics of models, in the same order."""
        self._peers.count()
        await self._backend.refresh()
        replies = await self._peers.ask(_STATISTICS, names)
        own = [self._own_statistics(name) for name in names]
        for values in (*replies.values.values(), *(counted[_STATISTICS] for counted in replies.counted.values())):
            others = _statistics_of(values)
            for name, own_counts in zip(names, own, strict=True):
                if name in others:
                    own_counts.add(others[name])
        return own

    def _own_statistics(self, name: str) -> ModelStatistics:
        """Returns what this process and its predecessors have counted."""
        statistics = self._backend.statistics(name)
        if (before := self._inherited.get(name)) is not None:
            statistics.add(before)
        return statistics

    def _counts(self, names: Sequence[str]) -> dict[str, Any]:
        self._peers.count()  # counts that others have seen must not be lost
        if self._peers.shares_backend:
            return {}
        return {name: msgspec.to_builtins(self._own_statistics(name)) for name in names}

    def _all_counts(self) -> dict[str, Any]:
        if self._peers.shares_backend:
            return {}
        return {name: msgspec.to_builtins(self._own_statistics(name)) for name in self._models}

    # Scaling

    async def scaling(self) -> dict[str, Any]:
        """Returns how many replicas each program has and should have in all processes together, and why."""
        await self._backend.refresh()
        own = self._backend.scaling()
        replies = await self._peers.ask(_SCALING)
        return add_up_reports([own, *replies.values.values()]) if replies.values else own

    async def scale(self, program: str, num_warm: int | None, num_parked: int | None) -> None:
        """Fixes how many replicas a program keeps in each process; see `Backend.scale`."""
        await self._backend.scale(program, num_warm, num_parked)
        if not self._peers.shares_backend:
            await self._peers.ask(_SCALE, [program, num_warm, num_parked])

    def _scale_here(self, wish: Sequence[Any]) -> None:
        """Applies a scale request from a peer. Errors are ignored here: the peer reports the same error."""
        scaling = asyncio.get_running_loop().create_task(self._scale_quietly(*wish))
        self._scaling.add(scaling)
        scaling.add_done_callback(self._scaling.discard)

    async def _scale_quietly(self, program: str, num_warm: int | None, num_parked: int | None) -> None:
        with contextlib.suppress(DyOrcError):
            await self._backend.scale(program, num_warm, num_parked)

    # Clients' memory

    async def register(self, name: str, key: str, offset: int, num_bytes: int) -> None:
        """Registers a part of a client's object, in all processes or none; see `ClientMemory.register`.

        Raises:
            ClientMemoryError: If another process cannot.
        """
        self._clients.register(name, key, offset, num_bytes)
        await self._register_elsewhere(name)

    async def register_device(self, name: str, handle: bytes, device_id: int, num_bytes: int) -> None:
        """Registers memory of a device that a client shares, in all processes or none; see `ClientMemory.register_device`.

        Raises:
            InvalidInputError: If there is no such device.
            ClientMemoryError: If another process cannot.
        """
        self._clients.check_allowed()
        accelerator = await find_device(name, device_id)
        self._clients.register_device(name, handle, accelerator, device_id, num_bytes)
        await self._register_elsewhere(name)

    async def _register_elsewhere(self, name: str) -> None:
        """Has all other processes register what this one has registered, or takes it back."""
        region = next(each for each in self._clients.registrations() if each["name"] == name)
        replies = await self._peers.ask(_REGISTER, region)
        if replies.errors:
            self._unregister_here({"region": region})
            await self._peers.ask(_UNREGISTER, {"region": region})
            number, text = min(replies.errors.items())
            raise ClientMemoryError(f"failed to register shared memory region '{name}' in cell {number}: {text}")
        self._peers.remember(_REGISTER, self._clients.registrations())

    async def unregister(self, kind: RegionKind, name: str | None = None) -> None:
        """Forgets a region of a kind, or all of them, in all processes."""
        self._clients.unregister(kind, name)
        await self._peers.ask(_UNREGISTER, {"name": name, "is_on_device": kind is DeviceRegion})
        self._peers.remember(_REGISTER, self._clients.registrations())

    def restore(self) -> None:
        """Restores, in a process that starts, what the others remember: clients' regions, unless their client has removed them
        since, and settings of the log."""
        for region in self._peers.remembered(_REGISTER) or ():
            try:
                self._register_here(region)
            except DyOrcError:
                continue
        if self._logs is not None and (values := self._peers.remembered(_LOGS)) is not None:
            self._logs.apply(values)

    # Logs

    @property
    def logs(self) -> LogControl:
        """The settings of the log.

        Raises:
            UnsupportedError: If logging was set up elsewhere, by the program that runs this server.
        """
        if self._logs is None:
            raise UnsupportedError("logging cannot be controlled here")
        return self._logs

    def control_logs(self, control: LogControl) -> None:
        """Lets clients change the settings of the log."""
        self._logs = control
        self._peers.answer(_LOGS, control.apply)

    async def set_logs(self, changes: Mapping[str, Any]) -> None:
        """Changes settings of the log in all processes. Raises what `LogControl.changed` raises."""
        values = self.logs.changed(changes)
        self.logs.apply(values)
        self._peers.remember(_LOGS, values)
        await self._peers.ask(_LOGS, values)

    def _register_here(self, region: dict[str, Any]) -> None:
        if region in self._clients.registrations():
            return
        name, num_bytes = region["name"], region["byte_size"]
        if "key" in region:
            self._clients.register(name, region["key"], region["offset"], num_bytes)
        else:
            handle, device_id = decode_handle(region["raw_handle"]), region["device_id"]
            self._clients.register_device(name, handle, device_of(name, device_id), device_id, num_bytes)

    def _unregister_here(self, order: dict[str, Any]) -> None:
        """Unregisters a region by name, all regions of a kind, or a region with exactly these properties."""
        region = order.get("region")
        if region is None:
            self._clients.unregister(DeviceRegion if order["is_on_device"] else MemoryRegion, order["name"])
        elif region in self._clients.registrations():
            self._clients.unregister(MemoryRegion if "key" in region else DeviceRegion, region["name"])


def _statistics_of(values: dict[str, Any]) -> dict[str, ModelStatistics]:
    return msgspec.convert(values, dict[str, ModelStatistics], strict=False)


_OF_ALL = frozenset({"num_bytes", "max_bytes", "max_bytes_per_tenant", "num_refused_inputs"})
"""Figures that all processes share: the store's, and the inputs that they refuse."""
_LEADS = frozenset({"from_parked_s", "from_cold_s"})
"""Times that each process measures of the same thing; other times are what was spent."""
_RANKS = {state.value: rank for rank, state in enumerate(BEST_FIRST)}


def add_up_reports(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the sum of the reports of several processes: counts, sizes and times spent are added, costs, ratios and lead times
    averaged.

    A program is in the best of its states. The first of several texts counts.
    """
    names = dict.fromkeys(name for report in reports for name in report)
    return {name: _add_up(name, [report[name] for report in reports if name in report]) for name in names}


def _with_replicas_of(cell: int, report: dict[str, Any]) -> dict[str, Any]:
    """Returns a report whose replicas have names that no other cell's have. A replica's process and times are no sums."""
    programs = {
        name: program | {"replicas": {f"{cell}/{replica}": values for replica, values in program.get("replicas", {}).items()}}
        for name, program in report.get("programs", {}).items()
    }
    return report | {"programs": programs}


def _add_up(name: str, values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    if not known:
        return None
    first = known[0]
    match first:
        case dict():
            return add_up_reports(known)
        case bool():
            return any(known)
        case int() | float() if name in _OF_ALL:
            return max(known)
        case int() | float() if name in _LEADS or name.endswith(("_ms", "_ratio")):
            return sum(known) / len(known)
        case int() | float():
            return sum(known)
        case str() if name == "state":
            return min(known, key=_rank)
        case _:
            return first


def _rank(state: str) -> int:
    """Returns how good a state is. Replicas have states that programs do not have; each replica is in one process only."""
    return _RANKS.get(state, len(_RANKS))
