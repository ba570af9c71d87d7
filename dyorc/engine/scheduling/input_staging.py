"""Sends tensors ahead to the node where they will be needed, before the batch that needs them is formed.

This happens only where the need is certain: all replicas of a program are on one node, and a certain call of it has inputs on
another. Then one of the replicas may fetch them while the call waits in its queue. A node without a name might be any node.
"""

from collections.abc import Iterable

from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.actions import StageTensors
from dyorc.engine.model.calls import Call
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.turn import Turn


class InputStaging:
    """Stages each row of a block once per replica."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._staged: dict[BlockId, set[tuple[str, int]]] = {}

    def __len__(self) -> int:
        return len(self._staged)

    def stage(self, call: Call, pool: ReplicaPool) -> None:
        """Stages the inputs of a certain call that waits in its queue."""
        if len(pool.num_replicas_on) != 1:
            return
        (node,) = pool.num_replicas_on
        away = [tensor for tensor in call.operands if tensor.block and tensor.node not in (node, "")]
        if not away or not node:
            return
        replica_id = min(pool.replicas.values(), key=lambda replica: (len(replica.batches), replica.replica_id)).replica_id
        tensors = [tensor for tensor in away if self._note(tensor, replica_id)]
        if tensors:
            self._turn.actions.append(StageTensors(replica_id, tensors))

    def _note(self, tensor: TensorRef, replica_id: str) -> bool:
        """Notes that a row is staged. Returns False if it was before."""
        rows = self._staged.setdefault((tensor.holder, tensor.block), set())
        row = (replica_id, tensor.offset)
        if row in rows:
            return False
        rows.add(row)
        return True

    def forget(self, blocks: Iterable[BlockId]) -> None:
        """Forgets blocks that are gone."""
        if self._staged:
            for block in blocks:
                self._staged.pop(block, None)

    def replica_left(self, replica_id: str) -> None:
        """Forgets a replica that is gone, and what it had fetched."""
        for block, rows in list(self._staged.items()):
            rows = {row for row in rows if row[0] != replica_id}
            if block[0] == replica_id or not rows:
                del self._staged[block]
            else:
                self._staged[block] = rows
