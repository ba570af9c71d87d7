"""Chooses the tier of a tensor: the cheapest that leads to its holder.

A view is always the cheapest. Between nodes, a tier's cost for n bytes is a line b + a*n, measured at the first fetch from a
holder, by fetching a small and a larger number of bytes from a block that every arena has for that purpose.
"""

import contextlib
import time
from collections.abc import Sequence

from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.column_codec import DevicePlace
from dyorc.transport.host_copies import HostCopyClient
from dyorc.transport.tiers import ByteSpan, TensorHolder, TensorTier, ViewTier

PROBE_BYTES = (4096, 512 * 1024)
"""Bytes fetched to learn a tier's cost."""

_NUM_PROBES = 3


class Routes:
    """A process's tiers, and the choice between them. One thread.

    Args:
        viewers: Tiers that copy nothing, the cheapest first.
        wires: Tiers to other nodes.
        host_copies: Has processes of this node fill blocks that are only on a device; None: none is.
    """

    def __init__(
        self, viewers: Sequence[ViewTier], wires: Sequence[TensorTier] = (), host_copies: HostCopyClient | None = None
    ) -> None:
        self._host_copies = host_copies
        self._viewers = viewers
        self._wires = wires
        self._costs: dict[TensorHolder, dict[str, tuple[float, float]]] = {}

    def viewer(self, holder: TensorHolder) -> ViewTier | None:
        """Returns the tier that can read a holder's tensors in place, if any."""
        for tier in self._viewers:
            if tier.reaches(holder):
                return tier
        return None

    def is_near(self, holder: TensorHolder, block: int, device: DevicePlace | None) -> bool:
        """Returns whether a block can be read in place at once: it is on this node, and not only on a device."""
        tier = self.viewer(holder)
        if tier is None or device is None:
            return tier is not None
        try:
            return _is_filled(tier, holder, block, device)
        except TransportError:
            return True  # it is gone, as who reads it finds out

    def fill(self, holder: TensorHolder, block: int, device: DevicePlace) -> None:
        """Waits until a block of this node, which may lie only on a device, has its bytes.

        Raises:
            TensorLostError: If it is gone.
        """
        tier = self.viewer(holder)
        if tier is not None and not _is_filled(tier, holder, block, device):
            if self._host_copies is None:
                raise TensorLostError(f"block {block} of holder {holder.holder_id!r} is on a device of another process")
            self._host_copies.copy(holder, block)

    def lose(self, holder: TensorHolder, block: int) -> None:
        """Has a holder of this node free a block whose elements on its device were overwritten. If it does not answer, its blocks
        are lost anyway."""
        if self._host_copies is not None:
            with contextlib.suppress(TensorLostError):
                self._host_copies.lose(holder, block)

    def wire(self, holder: TensorHolder, num_bytes: int) -> TensorTier:
        """Returns the tier that copies `num_bytes` from a holder in the shortest time.

        Raises:
            TensorLostError: If none leads there, or the holder does not answer.
        """
        ways = [tier for tier in self._wires if tier.reaches(holder)]
        if not ways:
            raise TensorLostError(f"no tier leads to holder {holder.holder_id!r} on node {holder.node!r}")
        if len(ways) == 1:
            return ways[0]
        costs = self._costs.get(holder)
        if costs is None:
            costs = self._costs[holder] = _measure(ways, holder)
        name = min(costs, key=lambda name: costs[name][0] + costs[name][1] * num_bytes)
        return next(tier for tier in ways if tier.name == name)

    def fetch(self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> str:
        """Copies bytes from another node, like `TensorTier.fetch`. After a failure, all tiers to the holder are measured again.

        Returns:
            The name of the tier that was used.
        """
        try:
            tier = self.wire(holder, sum(span.num_bytes for span in spans))
            tier.fetch(holder, spans, into)
            return tier.name
        except TransportError:
            self._costs.pop(holder, None)
            raise

    def report(self) -> dict[str, dict[str, dict[str, float]]]:
        """Returns what a fetch costs, by holder and tier: `base_us` and `us_per_mib`. Omits holders that only one tier leads
        to.
        """
        return {
            holder.holder_id: {
                name: {"base_us": round(base * 1e6, 1), "us_per_mib": round(slope * 1e6 * 2**20, 1)}
                for name, (base, slope) in costs.items()
            }
            for holder, costs in self._costs.items()
        }

    def forget(self, holder_id: str) -> None:
        """Forgets a holder that is gone."""
        for tier in (*self._viewers, *self._wires):
            tier.forget(holder_id)
        if self._host_copies is not None:
            self._host_copies.forget(holder_id)
        self._costs = {holder: costs for holder, costs in self._costs.items() if holder.holder_id != holder_id}

    def close(self) -> None:
        """Closes all tiers."""
        for tier in (*self._viewers, *self._wires):
            tier.close()
        if self._host_copies is not None:
            self._host_copies.close()


def _is_filled(tier: ViewTier, holder: TensorHolder, block: int, device: DevicePlace) -> bool:
    return tier.view(holder, ByteSpan(block, device.flag, 1), False)[0] == 1


def _measure(tiers: Sequence[TensorTier], holder: TensorHolder) -> dict[str, tuple[float, float]]:
    """Measures each tier's cost (b seconds, a seconds per byte); a tier that does not answer is left out."""
    if holder.probe is None:
        raise TransportError(f"holder {holder.holder_id!r} names no block to measure with")
    costs: dict[str, tuple[float, float]] = {}
    failures: list[str] = []
    for tier in tiers:
        try:
            small_s, large_s = (_fastest_s(tier, holder, holder.probe, num_bytes) for num_bytes in PROBE_BYTES)
        except TransportError as error:
            failures.append(f"{tier.name}: {error}")
            continue
        slope = max(0.0, large_s - small_s) / (PROBE_BYTES[1] - PROBE_BYTES[0])
        costs[tier.name] = (max(0.0, small_s - slope * PROBE_BYTES[0]), slope)
    if not costs:
        raise TensorLostError(f"holder {holder.holder_id!r} does not answer: {'; '.join(failures)}")
    return costs


def _fastest_s(tier: TensorTier, holder: TensorHolder, probe: ByteSpan, num_bytes: int) -> float:
    buffer = memoryview(bytearray(num_bytes))
    span = ByteSpan(probe.block, probe.offset, num_bytes)
    durations_s: list[float] = []
    for _ in range(_NUM_PROBES):
        started_s = time.perf_counter()
        tier.fetch(holder, (span,), (buffer,))
        durations_s.append(time.perf_counter() - started_s)
    return min(durations_s)
