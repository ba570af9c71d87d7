"""The messages between the orchestrator and its replicas.

A message is one header frame (msgpack, tagged and versioned) and the raw frames of its inline tensors. A batch is one
message.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from dyorc.authoring.resident import ChainLink
from dyorc.authoring.signature import StaticValue
from dyorc.core.request import RequestInfo
from dyorc.core.tensor import BlockId
from dyorc.core.trace_context import TraceContext
from dyorc.engine.request_trace import Move
from dyorc.transport.column_codec import ColumnHeader
from dyorc.transport.error_codec import PackedError
from dyorc.transport.header_codec import HeaderCodec, encode_header
from dyorc.transport.tiers import ByteSpan, TensorHolder

PROTOCOL_VERSION = 7


class ResidentColumn(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """One input or output of a batch, if it stays where it is: the numbers of the objects in their process, call by call; from a
    replica, with the bytes of each."""

    process: str
    numbers: tuple[int, ...]
    sizes: tuple[int, ...] = ()


BatchColumn: TypeAlias = ColumnHeader | ResidentColumn


class ReplicaHello(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Replica: I have loaded my program. Sent after loading, after connecting, and again while it is idle.

    `num_cores` is the number of its machine's cores, if the program runs on them; 0 if it has its own device. `load_s` is how
    long loading took. `plan` is a digest of its code and options; `fence` is the highest that it knows. `members` are the
    processes that share its module, if it is split. `process` names what it shares with other programs of its group, if there is
    anything: one process, and residents.
    """

    replica_id: str
    program: str
    pid: int
    holder: TensorHolder
    version: int = PROTOCOL_VERSION
    num_cores: int = 0
    load_s: float = 0.0
    plan: str = ""
    fence: int = 0
    members: tuple[int, ...] = ()
    process: str = ""


class Parked(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Replica: my process is up and has imported everything; I hold no program. Sent once that is so, after connecting, and again
    until it gets `Warm`.

    `start_s` is how long the process took to start; `device` is its device, if others may be on it; `plan`, `fence` and `process`
    are as in `ReplicaHello`.
    """

    replica_id: str
    program: str
    pid: int
    holder: TensorHolder
    version: int = PROTOCOL_VERSION
    num_cores: int = 0
    start_s: float = 0.0
    device: str = ""
    plan: str = ""
    fence: int = 0
    process: str = ""


class Warm(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Orchestrator: load your program, and send `ReplicaHello`."""


class Park(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """Orchestrator: drop your program, keep your arena, and send `Parked`."""


class LoadFailure(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Replica: I could not load my program. `Parked` follows, unless it could not be imported: then the process ends."""

    program: str
    error_type: str
    message: str
    traceback: str
    version: int = PROTOCOL_VERSION


class Loading(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Replica: my process is up, and imports what my program needs."""

    replica_id: str
    program: str
    version: int = PROTOCOL_VERSION


class BatchRequest(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Orchestrator: run this batch.

    `holders` are the owners of the arenas that its columns point to. If there is no room for its results, they may wait for
    `room_share` of the replica's longest wait. Spans of the program's code are children of `span`, if there is one. A program
    that yields may send `max_parts` parts, until `PartGrant` allows more. For `chain` and `seen`, see `DispatchBatch`; deadlines
    in `seen` count from when the message was sent.
    """

    batch_id: int
    columns: tuple[BatchColumn, ...]
    statics: tuple[StaticValue, ...] = ()
    holders: tuple[TensorHolder, ...] = ()
    room_share: float = 1.0
    span: TraceContext | None = None
    max_parts: int = 0
    chain: tuple[ChainLink, ...] = ()
    seen: tuple[RequestInfo, ...] = ()


class BatchReply(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Replica: these are the batch's results. Its columns point to the replica's own arena.

    `execute_s` is the program's time, including stacking of inputs and splitting of outputs. For the statistics:
    `gather_s` is fetching and stacking, `infer_s` the program's code alone, `publish_s` splitting and storing. `moves` says how
    its inputs came.
    """

    replica_id: str
    batch_id: int
    columns: tuple[BatchColumn, ...]
    execute_s: float
    gather_s: float = 0.0
    infer_s: float | None = None
    publish_s: float = 0.0
    moves: tuple[Move, ...] = ()


class BatchFailure(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Replica: the program raised; or, with `is_capacity`, the arena had no room for what it returned; or the input with the
    index `input_at` could not be read as its structured value."""

    replica_id: str
    batch_id: int
    error_type: str
    message: str
    traceback: str
    is_capacity: bool = False
    input_at: int = -1


class InputsLost(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Replica: the batch did not run, because inputs in these blocks (holder, block) cannot be read."""

    replica_id: str
    batch_id: int
    blocks: tuple[BlockId, ...]
    reason: str


class ReplicaWelcome(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Orchestrator: you are accepted. Free your arena; nothing will read it. The first message of a connection.

    A replica that knows a higher `fence` leaves, and uses nothing that comes on this connection.
    """

    fence: int = 0


class ReleaseBlocks(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Orchestrator: nothing reads these blocks of your arena now."""

    blocks: tuple[int, ...]


class ReleaseResidents(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Orchestrator: nothing needs these residents of your process now."""

    numbers: tuple[int, ...]


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Orchestrator: this holder is gone, and so are the tensors in its arena."""

    holder_id: str


class StagingHello(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Replica, on a second link: send me here what to fetch ahead."""

    replica_id: str


class StageSpans(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Orchestrator: you will need these tensors, which are on another node. Fetch them if you have room."""

    holder: TensorHolder
    spans: tuple[ByteSpan, ...]


class UnstageTensors(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Orchestrator: what you have fetched of these blocks (holder, block) is no longer needed."""

    blocks: tuple[BlockId, ...]


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Replica, on a separate link: I must end within `grace_s`. Let me finish my work; I leave once I got `Park`, and nothing
    reads my tensors.
    """

    replica_id: str
    grace_s: float


class Acknowledged(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Orchestrator, on that link: I know that you leave, or end. Without this, a replica need not wait."""


class LastWords(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """Replica, on a separate link: my process is about to end, for this reason, which its end alone would not show.

    It waits for `Acknowledged`, for a while.
    """

    replica_id: str
    reason: str


class LogAs(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """Orchestrator: log in this way from now on; see `LogsConfig`."""

    level: Literal["debug", "info", "warning", "error"]
    format: Literal["console", "json"]


class PartReply(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Replica: the program has yielded these parts, which follow each other.

    Its columns, with a row for each part, are like those of `BatchReply`, which follows after the last part, without columns.
    `digests` are as in `BatchPart`, one for each part; empty if the parts have none.
    """

    replica_id: str
    batch_id: int
    index: int
    columns: tuple[ColumnHeader, ...]
    digests: tuple[bytes, ...] = ()


class PartGrant(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Orchestrator: this batch may send up to `max_parts` parts, in all."""

    batch_id: int
    max_parts: int


class PartFeed(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Orchestrator: the next `num_parts` parts of a stream that this batch reads, from `index`, and perhaps its end behind them;
    see `FeedPart`. Its columns, with a row for each part, are like those of `BatchRequest`.
    """

    batch_id: int
    stream: int
    index: int
    num_parts: int
    columns: tuple[ColumnHeader, ...] = ()
    holders: tuple[TensorHolder, ...] = ()
    is_end: bool = False
    error: PackedError | None = None


class PartsTaken(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Replica: this batch has read so many parts of this stream, in all, and wants more. Not sent for each part."""

    replica_id: str
    batch_id: int
    stream: int
    num_taken: int


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """Orchestrator: end this batch; nothing needs its result. Answer as usual once it has ended."""

    batch_id: int


PackedMessage: TypeAlias = BatchReply | BatchFailure | InputsLost | PartReply | PartGrant | PartFeed | PartsTaken | Cancel
"""What is said of batches that run, in either direction."""


class Packed(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """Several messages in one, in order. `counts` says how many of the frames belong to each."""

    messages: tuple[PackedMessage, ...]
    counts: tuple[int, ...]


Message: TypeAlias = (
    ReplicaHello
    | LoadFailure
    | Loading
    | BatchRequest
    | BatchReply
    | BatchFailure
    | InputsLost
    | ReplicaWelcome
    | ReleaseBlocks
    | Forget
    | StagingHello
    | StageSpans
    | UnstageTensors
    | Parked
    | Warm
    | Park
    | Leaving
    | Acknowledged
    | LastWords
    | LogAs
    | PartReply
    | PartGrant
    | PartFeed
    | PartsTaken
    | Cancel
    | ReleaseResidents
    | Packed
)

_headers = HeaderCodec[Message](
    Message, (ReplicaHello, Parked, LoadFailure, Loading), PROTOCOL_VERSION, lambda greeting: f"a replica of {greeting.program!r}"
)
encode: Callable[[Message], bytes] = encode_header
decode = _headers.decode
