"""All metrics. `docs/reference/metrics.md` is made of this file (`make docs-metrics`); rules and boards in `deploy/` may use nothing else.

Names follow Prometheus' conventions: base units, `_total` for counters. A value of a label never comes from a request's content,
except tenants' names, which are bounded (`dyorc.telemetry.metrics.metric`).
"""

from collections.abc import Sequence

from dyorc.engine.estimators import DURATION_BOUNDS_NS
from dyorc.telemetry.metrics.metric import Combine, Metric, MetricKind

_SECONDS = tuple(bound_ns / 1e9 for bound_ns in DURATION_BOUNDS_NS)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

_ALL: list[Metric] = []


def _add(
    name: str, kind: MetricKind, group: str, help: str, labels: Sequence[str] = (), combine: Combine = Combine.SUM,
    bounds: tuple[float, ...] = (),
) -> Metric:  # fmt: skip
    metric = Metric(name=f"dyorc_{name}", kind=kind, group=group, help=help, labels=tuple(labels), combine=combine, bounds=bounds)
    _ALL.append(metric)
    return metric


# A table: one metric to a line.
# ruff: noqa: E501
# fmt: off

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

# Requests

_group = "Requests"
REQUESTS = _add("requests_total", _COUNTER, _group, "Requests that reached the engine and have ended, by how: `ok`, or the code of the error. Like all that an engine counts, a leader of a group has it, and its gateways do not.", ["workflow", "outcome"])
REQUEST_DURATION = _add("request_duration_seconds", _HISTOGRAM, _group, "How long answered requests took, from when the engine took them in.", ["workflow"], bounds=_SECONDS)
REQUESTS_IN_FLIGHT = _add("requests_in_flight", _GAUGE, _group, "Requests that the engine has not answered yet.", ["workflow"])
EFFECT_FAILURES = _add("effect_failures_total", _COUNTER, _group, "Effects that failed, or were lost (`effect_lost`), without anybody being told: their requests were answered without waiting for them. By the code of the error, or `not_begun`: they had not begun when the server stopped.", ["workflow", "outcome"])
PENDING_EFFECTS = _add("pending_effects", _GAUGE, _group, "Effects of answered requests that have not happened yet.", ["workflow"])
WORKFLOW_CALLS = _add("workflow_calls_total", _COUNTER, _group, "Calls of programs that requests made and that ran; without guesses that were still open when they had run.", ["workflow"])
WORKFLOW_QUEUE = _add("workflow_queue_seconds_total", _COUNTER, _group, "How long those calls waited for a replica, in all.", ["workflow"])
WORKFLOW_COMPUTE = _add("workflow_compute_seconds_total", _COUNTER, _group, "How long those calls were in their programs' code, in all. Each takes as long as its batch.", ["workflow"])
FIRST_PART = _add("request_first_part_seconds", _HISTOGRAM, _group, "How long requests that stream took until their first part was sent to the client, from when the engine took them in.", ["workflow"], bounds=_SECONDS)
BETWEEN_PARTS = _add("request_between_parts_seconds", _HISTOGRAM, _group, "How long each further part of their answers took after the one before it; its count is the number of these parts.", ["workflow"], bounds=_SECONDS)
REPLAYS = _add("workflow_replays_total", _COUNTER, _group, "How many times workflows were run again from their start because no guess at a decision was right.", ["workflow"])

# Programs

_group = "Programs"
CALLS = _add("calls_total", _COUNTER, _group, "Calls that have ended, by how: `ok`, or the code of the error. Guesses that ran count; calls that were withdrawn before they ran do not.", ["program", "outcome"])
CALL_QUEUE = _add("call_queue_seconds", _HISTOGRAM, _group, "How long calls waited for a replica, from when their inputs were there.", ["program"], bounds=_SECONDS)
BATCH_DURATION = _add("batch_duration_seconds", _HISTOGRAM, _group, "How long batches took, from when their replica was free for them until their results were back.", ["program"], bounds=_SECONDS)
BATCH_SIZE = _add("batch_size", _HISTOGRAM, _group, "Calls in a batch.", ["program"], bounds=_SIZES)
BATCH_COST = _add("batch_cost_total", _COUNTER, _group, "What the calls of all batches cost together, of programs that declare `cost`; over `dyorc_batches_total`, what a batch costs on average.", ["program"])
PROGRAM_FIRST_PART = _add("call_first_part_seconds", _HISTOGRAM, _group, "How long calls of programs that yield took until their first part was there, from when they were sent to a replica.", ["program"], bounds=_SECONDS)
PROGRAM_BETWEEN_PARTS = _add("call_between_parts_seconds", _HISTOGRAM, _group, "How long each further part took after the one before it, without the time in which nobody had read far enough for it; its count is the number of these parts.", ["program"], bounds=_SECONDS)
BATCHES = _add("batches_total", _COUNTER, _group, "Batches that ran, by why they were formed with the size they had (`FormReason`).", ["program", "reason"])
BATCH_INPUT = _add("batch_input_seconds_total", _COUNTER, _group, "The part of batches' time that went into their inputs: the way there, fetching, stacking.", ["program"])
BATCH_INFER = _add("batch_infer_seconds_total", _COUNTER, _group, "The part of batches' time that was spent in the program's code.", ["program"])
BATCH_OUTPUT = _add("batch_output_seconds_total", _COUNTER, _group, "The part of batches' time that went into their outputs: splitting, storing, the way back.", ["program"])
QUEUED_CALLS = _add("queued_calls", _GAUGE, _group, "Calls that are certain and wait for a replica.", ["program"])
QUEUED_GUESSES = _add("queued_guesses", _GAUGE, _group, "Calls that may turn out not to be needed, and wait.", ["program"])
RUNNING_CALLS = _add("running_calls", _GAUGE, _group, "Calls in batches that have been sent.", ["program"])
SUSPECT_CALLS = _add("suspect_calls", _GAUGE, _group, "Calls that may have ended a replica and wait to be tried alone.", ["program"])
REFUSED_INPUTS = _add("refused_inputs", _GAUGE, _group, "Inputs that have cost replicas and are refused now.", ["program"], Combine.MAX)

# Residents

_group = "Residents"
RESIDENTS = _add("residents", _GAUGE, _group, "Objects that calls of the program have left in its group's processes, and that may still be needed.", ["program"])
RESIDENT_BYTES = _add("resident_bytes", _GAUGE, _group, "Their size, as the program counts it; what its processes take in all is `dyorc_replica_memory_bytes`.", ["program"])
RESIDENTS_EVICTED = _add("residents_evicted_total", _COUNTER, _group, "Residents that were dropped for want of room, to be computed again when they are needed.", ["program"])
RESIDENTS_REBUILT = _add("residents_rebuilt_total", _COUNTER, _group, "Residents that were lost or evicted, and that the program's `rebuild` has made again.", ["program"])

# Guesses and holds

_group = "Guesses and holds"
GUESSES = _add("guesses_total", _COUNTER, _group, "Calls that ran, or began to, before they were certain.", ["program"])
GUESSES_COMMITTED = _add("guesses_committed_total", _COUNTER, _group, "Guesses that turned out to be needed.", ["program"])
GUESSES_SQUASHED = _add("guesses_squashed_total", _COUNTER, _group, "Guesses that turned out to be wrong.", ["program"])
DEVICE_USEFUL = _add("device_useful_seconds_total", _COUNTER, _group, "Expected device time of calls that were needed: each call's share of its batch.", ["program"])
DEVICE_WASTED = _add("device_wasted_seconds_total", _COUNTER, _group, "Expected device time of wrong guesses.", ["program"])
WORKFLOW_GUESSES = _add("workflow_guesses_total", _COUNTER, _group, "Calls of the workflow's requests that ran before they were certain.", ["workflow"])
WORKFLOW_COMMITTED = _add("workflow_guesses_committed_total", _COUNTER, _group, "Guesses that turned out to be needed.", ["workflow"])
WORKFLOW_SQUASHED = _add("workflow_guesses_squashed_total", _COUNTER, _group, "Guesses that turned out to be wrong.", ["workflow"])
WORKFLOW_USEFUL = _add("workflow_device_useful_seconds_total", _COUNTER, _group, "Expected device time of the workflow's calls that were needed.", ["workflow"])
WORKFLOW_WASTED = _add("workflow_device_wasted_seconds_total", _COUNTER, _group, "Expected device time of the workflow's wrong guesses.", ["workflow"])
HELD_BATCHES = _add("held_batches_total", _COUNTER, _group, "Batches that waited for calls about to be ready.", ["program"])
HELD_JOINED = _add("held_joined_calls_total", _COUNTER, _group, "Calls that joined a batch while it was held.", ["program"])
HELD_TIME = _add("held_seconds_total", _COUNTER, _group, "How long batches were held, in all.", ["program"])

# Replicas

_group = "Replicas"
REPLICAS = _add("replicas", _GAUGE, _group, "Replicas by state: `ready`, `loading`, `parked`, `parking`, and `starting`: processes that are expected and not there.", ["program", "state"])
REPLICAS_WANTED = _add("replicas_wanted", _GAUGE, _group, "Replicas that should take batches.", ["program"])
PROGRAM_FAILING = _add("program_failing", _GAUGE, _group, "1 if the last attempt to load the program failed and no replica is left, else 0.", ["program"], Combine.MAX)
REPLICA_MEMORY = _add("replica_memory_bytes", _GAUGE, _group, "Memory of the program's replica processes on this machine, all that the system counts as resident: weights, libraries and what is computed.", ["program"])
REPLICA_CPU = _add("replica_cpu_seconds_total", _COUNTER, _group, "Processor time of the program's replica processes on this machine, ended ones included.", ["program"])
REPLICA_FILES = _add("replica_open_files", _GAUGE, _group, "Files that they have open.", ["program"])

# Tensors

_group = "Tensors"
MOVED = _add("moved_bytes_total", _COUNTER, _group, "Inputs of the program's batches by the way they came: `message`, `shm`, `zmq`, `grpc`, or `process` if they were there.", ["program", "tier"])
MOVED_TIME = _add("moved_seconds_total", _COUNTER, _group, "How long replicas waited for them.", ["program", "tier"])
ARENA_SIZE = _add("arena_size_bytes", _GAUGE, _group, "What the server's own arenas may take.")
ARENA_USED = _add("arena_used_bytes", _GAUGE, _group, "Tensors in the server's own arenas.")
ARENA_MEMORY = _add("arena_memory_bytes", _GAUGE, _group, "Memory that the server's own arenas have taken from the system.")
REPLICA_ARENA_SIZE = _add("replica_arena_size_bytes", _GAUGE, _group, "What the arenas of the program's replicas on this machine may take.", ["program"])
REPLICA_ARENA_USED = _add("replica_arena_used_bytes", _GAUGE, _group, "Tensors in those arenas.", ["program"])
REPLICA_ARENA_MEMORY = _add("replica_arena_memory_bytes", _GAUGE, _group, "Memory that those arenas have taken from the system.", ["program"])
ARENA_FILL = _add("arena_fill_ratio", _GAUGE, _group, "How full the fullest arena of this machine is.", combine=Combine.MAX)
LINK_SENT = _add("link_sent_bytes_total", _COUNTER, _group, "Bytes sent to replicas over the link.")
LINK_RECEIVED = _add("link_received_bytes_total", _COUNTER, _group, "Bytes received from replicas over the link.")

# Gateway

_group = "Gateway"
ADMITTED = _add("admitted_requests_total", _COUNTER, _group, "Requests that were let in, jobs' attempts included.", ["tenant"])
REFUSED = _add("refused_requests_total", _COUNTER, _group, "Requests refused for lack of room: `tenant_requests`, `tenant_bytes`, `tenant_rate` (the tenant's own limits), `tenant_share`, `server_requests`, `server_bytes`.", ["tenant", "reason"])
TENANT_REQUESTS = _add("tenant_requests_in_flight", _GAUGE, _group, "Requests that were let in and have not ended.", ["tenant"])
TENANT_BYTES = _add("tenant_in_flight_bytes", _GAUGE, _group, "Bytes of their bodies.", ["tenant"])
SHED = _add("shed_requests_total", _COUNTER, _group, "Requests refused because they could not be answered within their own limit: `deadline` if that had passed already, else `overloaded`.", ["reason"])
ASSIGNED = _add("assigned_requests_total", _COUNTER, _group, "Requests that named no version while several versions had a share of them, by the version that they got and how it was chosen: `sticky`, by what their client said of itself, or `random`.", ["workflow", "reason"])
SHADOW = _add("shadow_requests_total", _COUNTER, _group, "Copies of requests that the version got, by what became of them: its answer was the `same`, or `different`; it `failed`; it was `dropped`, because others had to go first. Its time and errors are those of the workflow `NAME (shadow)`.", ["workflow", "outcome"])
CONNECTIONS = _add("http_connections", _GAUGE, _group, "Open HTTP connections.")
CONNECTIONS_ACCEPTED = _add("http_connections_opened_total", _COUNTER, _group, "HTTP connections that were opened.")

# Jobs

_group = "Jobs"
JOBS_RUNNING = _add("jobs_running", _GAUGE, _group, "Jobs that run on this server.")
JOBS_QUEUED = _add("jobs_queued", _GAUGE, _group, "Jobs that wait in the store, for all servers that share it; a few seconds old.", combine=Combine.MAX)
JOBS_STORED = _add("jobs_stored_bytes", _GAUGE, _group, "What all jobs take in the store.", combine=Combine.MAX)
JOBS_SUBMITTED = _add("jobs_submitted_total", _COUNTER, _group, "Jobs accepted by this server.")
JOBS_ENDED = _add("jobs_ended_total", _COUNTER, _group, "Jobs that ended on this server, by state: `succeeded`, `failed`.", ["state"])
JOBS_RETRIED = _add("jobs_retried_total", _COUNTER, _group, "Attempts at jobs that ended without a result, so that the job went back to the queue.")
JOB_STORE_DOWN = _add("job_store_down", _GAUGE, _group, "1 if the store of jobs cannot be used now, else 0.", combine=Combine.MAX)

# Cluster

_group = "Cluster"
LEADS = _add("leads", _GAUGE, _group, "1 if this orchestrator leads its group and serves, 0 if it stands by.", ["group"])
FENCE = _add("leadership_fence", _GAUGE, _group, "The number of its leadership, which grows with each of the group; 0 if it stands by.", ["group"], Combine.MAX)
LEASE_STORE_DOWN = _add("leadership_store_down", _GAUGE, _group, "1 if the store of the lease cannot be used now: a leader goes on leading, nobody else can begin to.", ["group"], Combine.MAX)

# Traces

_group = "Traces"
SPANS_SENT = _add("spans_sent_total", _COUNTER, _group, "Spans that the collector has taken, of requests and of programs' own code in these processes.")
SPANS_DROPPED = _add("spans_dropped_total", _COUNTER, _group, "Spans that were lost because the collector is slow or dead, or refused them.")
TRACES_DROPPED = _add("traces_dropped_total", _COUNTER, _group, "Requests that were to be traced and are not, because too many of them waited for their spans to be made.")
HISTORIES_WRITTEN = _add("histories_written_total", _COUNTER, _group, "Histories of requests that were written to files (`telemetry.histories`).")
HISTORIES_DROPPED = _add("histories_dropped_total", _COUNTER, _group, "Histories that were to be written and were not, because the files could not be written, or not fast enough.")

# Server

_group = "Server"
ENGINE_TURN = _add("engine_turn_seconds", _HISTOGRAM, _group, "How long the engine took over the events that it got together. All requests wait meanwhile.", bounds=_SECONDS)
ENGINE_RESTARTS = _add("engine_restarts_total", _COUNTER, _group, "How many times the engine failed and was replaced, which failed all requests in flight.")
LOOP_LAG = _add("event_loop_lag_seconds", _HISTOGRAM, _group, "How much later than due the event loop woke up, four times a second.", bounds=_SECONDS)
BUILD_INFO = _add("build_info", _GAUGE, _group, "Always 1; the labels say the version of DyOrc, and of Python.", ["version", "python"], Combine.MAX)
CELLS = _add("cells", _GAUGE, _group, "Processes of the server that answered this scrape; replicas are not among them.")
CELL_STARTS = _add("cell_starts_total", _COUNTER, _group, "How many times they were started. More than `dyorc_cells`: some have ended and were started again.")
MEMORY = _add("process_memory_bytes", _GAUGE, _group, "Memory of these processes, all that the system counts as resident.")
CPU = _add("process_cpu_seconds_total", _COUNTER, _group, "Processor time of these processes.")
FILES = _add("process_open_files", _GAUGE, _group, "Files that they have open, connections included.")
MAX_FILES = _add("process_max_files", _GAUGE, _group, "How many they may have open.")

CATALOGUE: tuple[Metric, ...] = tuple(_ALL)
"""In the order in which they are shown."""
BY_NAME = {metric.name: metric for metric in CATALOGUE}
