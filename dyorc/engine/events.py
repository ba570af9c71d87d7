"""Events: everything that the engine learns from its shell."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import msgspec

from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.core.request import RequestFacts, Terms
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.model.journal_keeper import JournalKeeper
from dyorc.engine.request_trace import Move, RequestTrace
from dyorc.errors import DyOrcError


class RequestArrived(msgspec.Struct, frozen=True):
    """A checked request. `identity` is equal for requests with the same inputs; None if unknown. `story` is filled with what
    happens to it, if it is recorded. `facts` returns what code may know of it besides its terms; None: nothing. `keeper` gets its
    journal when it ends."""

    request_id: int
    workflow: Workflow
    inputs: tuple[TensorRef, ...]
    statics: tuple[StaticValue, ...] = ()
    terms: Terms = Terms()
    identity: Hashable = None
    story: RequestTrace | None = None
    facts: Callable[[], RequestFacts] | None = None
    keeper: JournalKeeper | None = None


class SuspectInput(msgspec.Struct, frozen=True):
    """Inputs that another process was running for a program when it ended, how it ended, and until when that counts."""

    program: str
    identity: Hashable
    reason: str
    until_ns: int


class SuspectsReported(msgspec.Struct, frozen=True):
    """Another process that runs the same programs has ended, perhaps because of its inputs.

    Attributes:
        suspects: They run alone from now on, until one of them has run without harm.
        refused: They are no longer run.
        names_inputs_until_ns: Until then, batches name their inputs (`DispatchBatch.inputs`), in case this process ends too.
    """

    suspects: Sequence[SuspectInput] = ()
    refused: Sequence[SuspectInput] = ()
    names_inputs_until_ns: int = 0


class RequestCancelled(msgspec.Struct, frozen=True):
    """The caller no longer wants the answer."""

    request_id: int


class TimerFired(msgspec.Struct, frozen=True):
    """The time of the last `SetTimer` has come."""


class ValueFetched(msgspec.Struct, frozen=True):
    """The arrays that `FetchValue` asked for, or why they are missing: an error, or blocks that were `lost`."""

    fetch_id: int
    arrays: tuple[Any, ...] = ()
    error: DyOrcError | None = None
    lost: Sequence[BlockId] = ()


class AnswerTaken(msgspec.Struct, frozen=True):
    """The bytes of an answer with stored tensors have been read; or they could not be, because of blocks that were `lost`."""

    request_id: int
    lost: Sequence[BlockId] = ()


class PartTaken(msgspec.Struct, frozen=True):
    """The consumer has taken a part and wants more; or the part could not be read, because of blocks that were `lost`."""

    request_id: int
    index: int
    lost: Sequence[BlockId] = ()


class BatchDone(msgspec.Struct, frozen=True):
    """A batch ran: for each of its calls, in order, the output tensors. `execute_s` is the program's own time, without its waits
    for parts of streams.

    For the statistics: `gather_s` is the time for fetching and stacking inputs, `infer_s` that in the program's code (None: all
    of `execute_s`), `publish_s` that for splitting and storing outputs. Stacking and splitting are in `execute_s`, too. `moves`
    says how the inputs came.
    """

    replica_id: str
    batch_id: int
    outputs: Sequence[tuple[TensorRef, ...]]
    execute_s: float
    gather_s: float = 0.0
    infer_s: float | None = None
    publish_s: float = 0.0
    moves: Sequence[Move] = ()


class BatchPart(msgspec.Struct, frozen=True):
    """A program has yielded a part. Parts come in order, from 0; then `BatchDone` with ``[()]`` as its outputs, or `BatchFailed`.

    Attributes:
        tensors: The part's, in the order of the program's outputs.
        digest: Of their types, shapes and bytes, if the program may be run again: then it has to yield the same.
    """

    replica_id: str
    batch_id: int
    index: int
    tensors: tuple[TensorRef, ...]
    digest: bytes = b""


class InputPartsTaken(msgspec.Struct, frozen=True):
    """A running batch has read so many parts of one of its streams, in all, and wants more."""

    replica_id: str
    batch_id: int
    stream: int
    num_taken: int


class BatchFailed(msgspec.Struct, frozen=True):
    """The program raised on a batch; or, with `is_capacity`, there was no memory for what it returned; or it did not run, since
    the input with the index `input_at` is not the structured value that it declares."""

    replica_id: str
    batch_id: int
    error_type: str
    message: str
    traceback: str = ""
    is_capacity: bool = False
    input_at: int = -1


class TensorsLost(msgspec.Struct, frozen=True):
    """A batch did not run, because its replica could not get inputs from these blocks."""

    replica_id: str
    batch_id: int
    blocks: Sequence[BlockId]


class BatchUnsent(msgspec.Struct, frozen=True):
    """A batch was held back before it was sent to its replica, and will not be sent. Nothing of it has run."""

    replica_id: str
    batch_id: int


class ReplicaJoined(msgspec.Struct, frozen=True):
    """A replica has loaded its program and is ready.

    `num_cores` is how many its node has, if its program runs on them; 0: it has its own device. `process` is the name under which
    it holds residents, the same for all programs of a group that share its process; empty: it has none.
    """

    replica_id: str
    program: str
    node: str = ""
    num_cores: int = 0
    process: str = ""


class ReplicaLeft(msgspec.Struct, frozen=True):
    """A replica is gone, parked or not, with all that it held.

    Attributes:
        is_crash: Whether its process certainly crashed.
        was_killed: Whether a signal ended it that others send, so that perhaps no call is the cause.
    """

    replica_id: str
    reason: str = "connection lost"
    is_crash: bool = False
    was_killed: bool = False


class ReplicaLeaving(msgspec.Struct, frozen=True):
    """A replica will end soon. It gets no more batches, and is parked (`ParkReplica`) once it has returned those it holds."""

    replica_id: str


class LoadFailed(msgspec.Struct, frozen=True):
    """A replica could not load its program."""

    program: str
    error_type: str
    message: str
    traceback: str = ""


class ReplicasWanted(msgspec.Struct, frozen=True):
    """A program should have this many replicas that take batches, from now on. Repeating it changes nothing.

    Surplus replicas are parked (`ParkReplica`) once they hold no batch; for missing ones, the engine waits. Without this event,
    all replicas of a program take batches.

    Attributes:
        lead_s: How long it takes until a replica is ready, if none is; 0 if unknown. Calls that cannot wait so long fail at once.
        misplaced: Replicas that are parked before others, even if they are busy.
        is_order: Whether a person has set the number, so that calls do not change it. With 0 replicas, calls fail at once then.
    """

    program: str
    num_warm: int
    lead_s: float = 0.0
    misplaced: tuple[str, ...] = ()
    is_order: bool = False


class ProgramAdded(msgspec.Struct, frozen=True):
    """A program may be called from now on; its replicas join later.

    If another program of that name is deployed, calls of the new one run on its replicas.
    """

    program: Program


class ProgramRemoved(msgspec.Struct, frozen=True):
    """No request calls a program any longer. If it runs on the replicas of another of that name, only the program is forgotten.

    If its replicas were parked before (`ReplicasWanted`), nothing is lost; calls that still wait fail.
    """

    program: Program


class HolderJoined(msgspec.Struct, frozen=True):
    """A gateway's process holds inputs of requests. `ReplicaLeft` says that it is gone."""

    holder_id: str


class WorkflowRemoved(msgspec.Struct, frozen=True):
    """No request runs a workflow any longer: what was learned of it is forgotten."""

    workflow: Workflow


Event: TypeAlias = (
    RequestArrived
    | RequestCancelled
    | TimerFired
    | ValueFetched
    | AnswerTaken
    | PartTaken
    | BatchDone
    | BatchPart
    | InputPartsTaken
    | BatchFailed
    | TensorsLost
    | BatchUnsent
    | ReplicaJoined
    | ReplicaLeft
    | ReplicaLeaving
    | LoadFailed
    | ReplicasWanted
    | SuspectsReported
    | ProgramAdded
    | ProgramRemoved
    | WorkflowRemoved
    | HolderJoined
)
