"""Every setting of DyOrc, with its unit and default.

Each component takes its own section, frozen. `Settings` composes them. They are read once, by the command line
(`dyorc.settings`), from flags, the environment and a file, and passed down.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

DEFAULT_GROUP = "default"

FilePath: TypeAlias = Annotated[str, Field(json_schema_extra={"format": "path"})]
"""In a configuration file, relative to that file."""
Secret: TypeAlias = Annotated[str, Field(json_schema_extra={"writeOnly": True})]
"""Not shown anywhere."""
Host: TypeAlias = Annotated[str, AfterValidator(lambda host: host.removeprefix("[").removesuffix("]"))]
"""A name or an address to listen on; one of IPv6 may stand in brackets, as in a URL."""
Origin: TypeAlias = Annotated[str, Field(pattern=r"^(\*|https?://[a-z0-9.\-\[\]:]+)$")]
"""Of a page, as browsers write it: scheme, host and port in lower case, nothing else; or all of them."""
HeaderName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$"), AfterValidator(str.lower)]
"""In any case; kept in lower case."""


QueueDisciplineName: TypeAlias = Literal["oldest_request", "oldest_call", "least_attained", "least_slack", "shortest_remaining"]


class _Section(BaseModel):
    # `dyorc.settings.settings_text` knows the docstrings
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SpeculationConfig(_Section):
    """When the engine guesses the outcome of a decision, and what that may cost."""

    enabled: bool = True
    max_depth: int = Field(default=4, ge=1)
    """Open decisions that one path of a workflow may have guessed."""
    min_probability: float = Field(default=0.1, ge=0, le=1)
    """Work less likely to be needed than this is not prepared."""
    max_wasted_ratio: float = Field(default=0.3, ge=0, lt=1)
    """Fraction of the device time that may go to wrong guesses, per workflow and in all."""
    margin: float = Field(default=1.0, ge=0)
    """A guess must be expected to save this many times its expected cost to others."""
    burst_s: float = Field(default=2.0, ge=0)
    """Device time in seconds that may briefly be wasted above that ratio."""
    compare: bool = True
    """Whether some requests go without guesses, so that it is measured whether guessing makes a workflow's requests quicker."""


class EngineConfig(_Section):
    """Limits of the engine."""

    max_requests: int = Field(default=4096, ge=1)
    """Requests in flight; one more is refused."""
    max_calls_per_request: int = Field(default=10_000, ge=1)
    """Calls of one request: of programs and of workflows, in all workflows it runs together; one more fails it."""
    max_in_flight_batches: int = Field(default=2, ge=1)
    """Batches that one replica may hold: one runs, the rest are on their way."""
    max_attempts: int = Field(default=3, ge=1)
    """How often results or inputs of a call may be lost before it fails."""
    max_deaths: int = Field(default=2, ge=1)
    """Replicas that a call may lose, the last of them alone, before it and equal requests are refused; one more where a signal
    from outside, such as SIGKILL, ended the last. What equal calls lose side by side counts once."""
    max_suspect_wait_s: float = Field(default=10.0, ge=0)
    """How long a call that may have ended a replica waits at most until its next death would delay no other call."""
    max_refused_inputs: int = Field(default=1000, ge=0)
    """Inputs that have cost replicas and are remembered, to refuse equal ones; 0 remembers none."""
    refuse_inputs_s: float = Field(default=600.0, gt=0)
    """How long they are remembered."""
    max_load_failures: int = Field(default=3, ge=1)
    """After this many failed loads in a row, a program's waiting calls fail with its error."""
    max_steps_per_turn: int = Field(default=256, ge=1)
    """Steps that the workflows of one request may take before the engine turns to everything else, deadlines included. An eighth
    of it is each request's in any case; what they take beyond that is twice this for all together, the oldest first."""
    step_warning_s: float = Field(default=0.05, gt=0)
    """A workflow's own code that runs longer without awaiting anything is logged: all requests wait for it."""
    step_limit_s: float = Field(default=5.0, gt=0)
    """After this long it is interrupted, and its request fails."""
    request_timeout_s: float = Field(default=300.0, gt=0)
    """Time limit of a request that sets none."""
    max_overtaking_s: float = Field(default=30.0, gt=0)
    """Up to this much later, a request may still overtake another of its tenant, by its priority or its deadline."""
    queue_discipline: QueueDisciplineName = "oldest_request"
    """Which call of a tenant goes first where priorities and deadlines leave it open: of the request that came first; the call
    that has been ready for longest; of the request that has had the least of replicas' time; that still needs the most, or the
    least."""
    max_determinism_checks: int = Field(default=3, ge=0)
    """The first requests of each workflow are run again against their journal, until this many have passed; one that takes
    another course fails."""
    max_untaken_parts: int = Field(default=16, ge=1)
    """Parts a streaming request may have sent without its client taking them; at this limit, its workflow waits."""
    prefetch_ratio: float = Field(default=1.0, ge=0, le=1)
    """Fraction of a batch's expected time that must have passed before the next may travel to the same replica."""
    hold: bool = True
    """Whether a batch may wait for a call whose inputs are almost there."""
    early_drop: bool = True
    """Whether a request fails as soon as its deadline is known to be missed, instead of running its calls."""
    speculation: SpeculationConfig = SpeculationConfig()


class BudgetConfig(_Section):
    """What all replicas together may take. Where it is full, the least valuable warm replica is parked."""

    max_cpus: float | None = Field(default=None, gt=0)
    """Processors of warm replicas; None: no limit."""
    max_gpus: float | None = Field(default=None, gt=0)
    """Devices of warm replicas, fractions too; None: no limit."""
    max_bytes: int | None = Field(default=None, gt=0)
    """Memory of all replicas, parked ones too; None: no limit."""


class ScalingConfig(_Section):
    """How many replicas are warm, parked or cold. Bounds and delays are each program's own (`autoscaling_config`)."""

    interval_s: float = Field(default=0.5, gt=0)
    """Interval of decisions. A request that will need a program without a warm replica causes one at once."""
    quantile: float = Field(default=0.95, gt=0, lt=1)
    """How surely the replicas suffice for the calls that come."""
    parked_quantile: float = Field(default=0.99, gt=0, lt=1)
    """The same for warm and parked ones together: parked ones are cheap."""
    window_s: float = Field(default=2.0, gt=0)
    """Replicas must suffice for all calls of any period of this length: shorter peaks may wait in queues."""
    drain_s: float = Field(default=5.0, gt=0)
    """Within this time after new replicas are ready, the calls that had to wait are to be done."""
    max_utilization: float = Field(default=0.85, gt=0, le=1)
    """Fraction of its time that a replica is to compute at most."""
    max_batch_ratio: float = Field(default=3.0, ge=1)
    """Batches are to take at most this many times as long as one of a single call; there are more replicas rather than larger
    batches."""
    wait_cost: float = Field(default=50.0, ge=0)
    """How many seconds of a warm replica a request is worth that need not wait for one second. One replica is kept warm for a
    program if a call within its start-up time is more probable than one in so many."""
    parked_ratio: float = Field(default=0.1, gt=0, le=1)
    """What a parked replica costs, relative to a warm one."""
    down_margin: float = Field(default=0.1, ge=0)
    """Replicas are parked only if the others suffice for this much more traffic than is expected."""
    keep_margin: float = Field(default=4.0, ge=1)
    """The last warm replica is parked only if it is worth this many times less than what it takes to warm one."""
    max_step: int = Field(default=4, ge=1)
    """Replicas by which a program may grow in one interval, or as many as it has, if that is more."""
    value_horizon_s: float = Field(default=30.0, gt=0)
    """A replica's value in a full budget is counted in the calls expected within this time."""
    swap_margin: float = Field(default=1.5, ge=1)
    """A warm replica makes room only for one that is worth this many times as much."""
    max_replicas_by_hand: int = Field(default=64, ge=1)
    """Warm and parked replicas that `dyorc scale` may ask for, of a program that does not declare more itself."""
    season_s: float | None = Field(default=None, gt=0)
    """Period in which the traffic repeats, e.g. 86400; None: it is looked for."""
    budget: BudgetConfig = BudgetConfig()


class OrchestratorConfig(_Section):
    """What an orchestrator decides by."""

    engine: EngineConfig = EngineConfig()
    scaling: ScalingConfig = ScalingConfig()


class LinkConfig(_Section):
    """The link between the orchestrator and its replicas: a Unix socket, or ZeroMQ if there are other nodes."""

    host: Host = ""
    """Address of this machine for replicas on other nodes; empty without other nodes. The traffic is encrypted (CURVE)."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port for replicas on other nodes; 0 takes a free one."""

    heartbeat_interval_s: float = Field(default=0.2, gt=0)
    """Interval of checks whether a peer is alive: by its process on this machine, elsewhere by a message."""
    heartbeat_timeout_s: float = Field(default=0.7, gt=0)
    """A peer counts as lost after this long without a sign of life. One whose connection closes is noticed at once."""
    kill_after_s: float = Field(default=3.0, ge=0)
    """After this long, the process of a lost replica, if it still runs, is ended to make room for another."""
    announce_interval_s: float = Field(default=1.0, gt=0)
    """Interval at which an idle replica announces itself again, so that a new orchestrator finds it."""


class TransportConfig(_Section):
    """How tensors travel between processes."""

    arena_bytes: int | None = Field(default=None, ge=2**20)
    """Size of each process's arena in shared memory; None: half of the folder's size, or of the machine's memory for a cell,
    whose arena lies in no folder. Memory is taken when needed."""
    arena_keep_bytes: int = Field(default=256 * 2**20, ge=0)
    """Memory that each arena keeps although no tensor lies there; what it has beyond that is given back to the system."""
    arena_release_after_s: float = Field(default=10.0, gt=0)
    """How long memory of an arena must have been free before it is given back."""
    arena_folder: FilePath = "/dev/shm"
    """Folder in which processes of one machine share memory."""
    share_by_folder: bool = False
    """Whether processes with the same `arena_folder` share memory although Ray counts them to different nodes: containers of one
    machine that have mounted it."""
    arena_wait_s: float = Field(default=5.0, ge=0)
    """How long a batch's results may wait for room in the arena, tries in smaller parts included, before its requests get 503."""
    device_bytes: int | None = Field(default=None, ge=0)
    """What results of a replica may take on its device (`device=`), for programs on the same device in other processes; None: an
    eighth of the device's memory; 0: results come to the host at once."""
    inline_limit_bytes: int | None = Field(default=None, ge=0)
    """Tensors up to this size travel inside messages; None: up to the size from which shared memory was measured to be
    cheaper, or 1 MiB in a cell."""
    chunk_bytes: int = Field(default=2**20, ge=1024)
    """Size of the pieces in which tensors travel to other nodes. A link must transfer one within `peer_timeout_s`."""
    max_chunks_in_flight: int = Field(default=8, ge=1)
    """Pieces that a receiver has requested and not yet received: its credit."""
    peer_timeout_s: float = Field(default=1.0, gt=0)
    """Silence after which a process that tensors are fetched from counts as lost."""
    grpc: bool = False
    """Whether tensors also travel by gRPC, when that is cheaper; clients in other languages may use it too."""
    grpc_certificate_file: FilePath = ""
    """PEM file with the certificate chain of the gRPC servers; the key is in `grpc_key_file`."""
    grpc_key_file: FilePath = ""
    grpc_roots_file: FilePath = ""
    """PEM file with the certificates that gRPC clients trust."""
    grpc_allow_insecure: bool = False
    """Whether gRPC may do without TLS on non-loopback addresses."""
    staging_bytes: int = Field(default=256 * 2**20, ge=0)
    """Bytes of tensors from other nodes that a replica may hold ahead of the batches that need them."""


class CellsConfig(_Section):
    """Programs in the server's own process."""

    num_cells: Annotated[int, Field(ge=1)] | Literal["auto"] | None = None
    """Processes that share the ports, under a supervisor that starts them again if they end; "auto": one for each core; None:
    one, without a supervisor. Only with `in_process`."""
    inline_limit_s: float = Field(default=0.002, ge=0)
    """What a batch on the event loop may take. A program whose batches compute for less than half of it moves there, and one that
    gains nothing from a thread with up to four times as long batches; others run on threads of their own."""
    switch_interval_s: float = Field(default=0.0005, gt=0)
    """How long a thread may keep the interpreter while another waits for it."""
    load_retry_s: float = Field(default=1.0, gt=0)
    """How long after a failed load a program is loaded again; each further failure doubles it, up to 30 s."""
    max_hung: int = Field(default=3, ge=1)
    """A program with this many hung batches is not loaded again until one has ended: threads cannot be killed."""
    hang_limit_s: float = Field(default=10.0, gt=0)
    """With a supervisor, a cell whose event loop stands still for longer is ended and started again."""
    restart_delay_s: float = Field(default=0.5, ge=0)
    """A cell that ends starts again at once; if it ends again within a minute, after this long, and each further time twice as
    long."""
    max_restart_delay_s: float = Field(default=30.0, ge=0)
    """The longest such delay."""
    device_bytes: int | None = Field(default=None, ge=0)
    """What results of programs may take on each device (`device=`) before the least recently used are moved to the host; None: a
    quarter of the device's memory."""


class DeploymentConfig(_Section):
    """How Ray Serve runs the replicas."""

    ray_address: str = ""
    """A Ray cluster to run replicas on, e.g. ``10.0.0.1:6379``; empty starts Ray on this machine."""

    health_check_period_s: float = Field(default=1.0, gt=0)
    health_check_timeout_s: float = Field(default=10.0, gt=0)
    graceful_shutdown_timeout_s: float = Field(default=3.0, ge=0)
    object_store_bytes: int = Field(default=80 * 2**20, ge=78_643_200)
    """Size of Ray's object store; DyOrc sends no tensor through it."""
    code_folders: tuple[str, ...] = ()
    """Folders from which a running server may load versions of workflows (`dyorc deploy`), besides those of its own code."""
    import_timeout_s: float = Field(default=120.0, gt=0)
    """How long importing a version may take before it is refused."""
    warm_timeout_s: float = Field(default=600.0, gt=0)
    """How long a version's programs may take to load before it is refused."""
    judge_interval_s: float = Field(default=1.0, gt=0)
    """How often a version with rules (`dyorc deploy --judge`) is judged."""


class ShadowConfig(_Section):
    """Copies of requests that a version gets whose answers nobody sees (`dyorc deploy --shadow`)."""

    max_in_flight: int = Field(default=8, ge=1)
    """Copies that each process runs at the same time; others are dropped."""
    max_request_bytes: int = Field(default=2**20, ge=0)
    """A request with larger inputs, or outputs, is not copied."""
    max_bytes: int = Field(default=64 * 2**20, ge=0)
    """Memory of each process for what is copied; beyond that, copies are dropped."""
    timeout_s: float = Field(default=30.0, gt=0)
    """How long a copy may take."""
    relative_tolerance: float = Field(default=1e-3, ge=0)
    """Floats of two answers are the same if they differ by no more than this part of the first, and `absolute_tolerance`."""
    absolute_tolerance: float = Field(default=1e-6, ge=0)


class GatewayConfig(_Section):
    """The gateway: HTTP and gRPC."""

    host: Host = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """0 takes a free one."""
    grpc: bool = True
    """Whether to serve gRPC besides HTTP."""
    grpc_port: int | None = Field(default=None, ge=0, le=65535)
    """None: the one after `port`, or a free one if `port` is 0 or 65535."""
    grpc_server: Literal["grpcio", "nghttp2"] = "grpcio"
    """What answers gRPC: grpcio's server, or connections of our own by nghttp2 (the extra `nghttp`), for a part of the processor
    time; it has no TLS, so that grpcio answers where a certificate is set."""
    keys_file: FilePath = ""
    """File with tenants and the hashes of their API keys; empty: no key is needed."""
    allow_open: bool = False
    """Whether to listen on non-loopback addresses without asking for keys or certificates."""
    tls_certificate_file: FilePath = ""
    """PEM file with the server's certificate chain; if set, HTTP and gRPC are served over TLS only."""
    tls_key_file: FilePath = ""
    tls_client_roots_file: FilePath = ""
    """PEM file with the authorities of client certificates (mutual TLS); empty: no certificates are asked for."""
    max_requests: int = Field(default=4096, ge=1)
    """Requests in flight; one more gets 503."""
    max_bytes_in_flight: int = Field(default=2**30, ge=1)
    """Bytes of requests in flight; a request that would exceed them gets 503."""
    max_request_bytes: int = Field(default=64 * 2**20, ge=1)
    """Largest body of a request."""
    max_answer_bytes: int = Field(default=2**30, ge=1)
    """Largest answer: all its tensors together, before encoding; in a stream, each part."""
    max_image_pixels: int = Field(default=64 * 2**20, ge=1, le=178_956_970)
    """Largest image in a request, in pixels; Pillow itself refuses images beyond the highest value."""
    max_choices: int = Field(default=128, ge=1)
    """Answers that one request of OpenAI's API may ask for: its prompts times its `n`. Each runs the workflow once."""
    shed: bool = True
    """Whether a request with its own time limit (`Request-Timeout`) is refused before it is read if the limit cannot be met."""
    max_connections: int = Field(default=16_384, ge=1)
    """HTTP connections; one more gets 503 and is closed. Fewer if the process may not have that many descriptors."""
    max_header_bytes: int = Field(default=32 * 2**10, ge=1024)
    """Largest head of a request: line, headers and trailers; a larger one gets 431."""
    header_timeout_s: float = Field(default=10.0, gt=0)
    """Time for the head of a request, from its first byte, and for the TLS handshake."""
    body_timeout_s: float = Field(default=10.0, gt=0)
    """In every period of this length, a body must bring `min_bytes_per_s`, or end."""
    write_timeout_s: float = Field(default=30.0, gt=0)
    """In every period of this length, a client must read `min_bytes_per_s` of its answer, or all of it."""
    min_bytes_per_s: int = Field(default=8 * 2**10, ge=1)
    """Slowest client that is served, in bytes per second, each way."""
    idle_timeout_s: float = Field(default=75.0, gt=0)
    """How long a connection may stay open without a request."""
    drain_timeout_s: float = Field(default=10.0, ge=0)
    """Time that requests in flight are given when the server stops."""
    shadow: ShadowConfig = ShadowConfig()
    shown_headers: tuple[HeaderName, ...] = ()
    """Headers of requests, and metadata of gRPC calls, that code may see by `dyorc.request`; none by default."""
    mcp: bool = False
    """Whether workflows are tools of the Model Context Protocol, at `/mcp`. Needs the extra `mcp`."""
    cors_origins: tuple[Origin, ...] = ()
    """Origins of pages that may call it from browsers, such as `https://app.example.com`; `*` for all; none by default."""
    cors_credentials: bool = False
    """Whether browsers may send cookies and client certificates from those pages. API keys in headers do not need that."""
    allow_client_shm: bool = False
    """Whether clients of this machine may have tensors read from and written to their own shared memory. Anyone who can reach the
    server can then read and write every object in /dev/shm that its user may open."""

    @model_validator(mode="after")
    def _check_cors(self) -> Self:
        if self.cors_credentials and "*" in self.cors_origins:
            raise ValueError("cors_credentials needs the origins by name: cors_origins is '*', any page of the web")
        return self

    @property
    def grpc_port_to_bind(self) -> int:
        """The port for gRPC; 0 takes a free one."""
        if self.grpc_port is not None:
            return self.grpc_port
        return self.port + 1 if 0 < self.port < 65535 else 0


class JobsConfig(_Section):
    """Durable jobs."""

    max_running: int = Field(default=40, ge=1)
    """Jobs that this server runs at the same time. One tenant's jobs for one model take at most 4/5 of them."""
    max_queued: int = Field(default=10_000, ge=1)
    """Jobs of one tenant that may wait; one more gets 429."""
    max_bytes_per_tenant: int = Field(default=2**30, ge=1024)
    """Bytes that one tenant's jobs may take in the store, waiting and ended together; beyond that 429."""
    max_bytes: int = Field(default=4 * 2**30, ge=1024)
    """The same for all tenants together; beyond that 503."""
    lease_s: float = Field(default=5.0, gt=0)
    """How long a job of a server that died waits before it is run again. Must be equal on all servers that share a store."""
    max_attempts: int = Field(default=3, ge=1)
    """Attempts at a job whose server dies, or that fails for a reason that may pass."""
    ttl_s: float = Field(default=86_400.0, gt=0)
    """How long a finished job and its result are kept."""
    max_ttl_s: float = Field(default=30 * 86_400.0, gt=0)
    """The longest time that a job may ask to be kept."""
    webhook_hosts: tuple[str, ...] = ()
    """Hosts that may be notified of finished jobs; none by default."""
    webhook_secret: Secret = ""
    """Signs webhooks."""
    webhook_timeout_s: float = Field(default=10.0, gt=0)
    """Time for a webhook to be answered."""
    webhook_give_up_s: float = Field(default=86_400.0, ge=0)
    """How long after a job's end its webhook is retried."""


class RecordsConfig(_Section):
    """Records of requests, step by step, for the page, `dyorc explain` and traces."""

    ratio: float = Field(default=1.0, ge=0, le=1)
    """Fraction of the requests that are recorded; requests with `explain` and requests of sampled traces always are."""
    max_per_s: float = Field(default=100.0, ge=1)
    """Requests per second that each process records at most; a busier one records a sample, evenly spread."""
    max_bytes: int = Field(default=64 * 2**20, ge=0)
    """Memory of each process for records of requests that have ended: the latest, slow and failed ones for longer. 0: none."""
    slow_s: float = Field(default=1.0, gt=0)
    """A request of any workflow that takes longer is slow."""


class TracesConfig(_Section):
    """Traces, sent by OTLP. Off without an endpoint. OpenTelemetry's own environment variables count where a setting is empty."""

    endpoint: str = ""
    """Where to send them, e.g. ``http://127.0.0.1:4317``; empty: ``OTEL_EXPORTER_OTLP_ENDPOINT``, if that is set."""
    protocol: Literal["", "grpc", "http/protobuf"] = ""
    """Empty: ``OTEL_EXPORTER_OTLP_PROTOCOL``, or else ``grpc``."""
    ratio: float = Field(default=0.01, ge=0, le=1)
    """Fraction of the requests that are traced. Does not concern requests with a ``traceparent``, whose sender has decided."""
    slow_or_failed: bool = True
    """Whether requests that turn out to be slow, or fail, are traced too, as far as they are recorded."""


class LogsConfig(_Section):
    """Logs, on standard error."""

    format: Literal["console", "json"] = "console"
    level: Literal["debug", "info", "warning", "error"] = "warning"
    """Can be changed while the server runs."""
    requests: Literal["off", "errors", "slow", "all"] = "off"
    """Which requests get a line of their own when they have ended; "slow" includes errors."""


class ClusterConfig(_Section):
    """Gateways and orchestrators as processes of their own (`dyorc gateway`, `dyorc orchestrator`). They share `store`."""

    group: str = Field(default=DEFAULT_GROUP, min_length=1)
    """An orchestrator's group. All orchestrators of a group can serve the same workflows: one leads, the others stand by."""
    groups: tuple[str, ...] = Field(default=(DEFAULT_GROUP,), min_length=1)
    """The groups behind a gateway."""
    num_gateways: Annotated[int, Field(ge=1)] | Literal["auto"] | None = None
    """Processes of a gateway that share its ports, under a supervisor that starts them again if they end; "auto": one for each
    core; None: one, without a supervisor."""
    host: Host = ""
    """Address of this machine for gateways and orchestrators on other machines; empty: all are on this one."""
    port: int = Field(default=0, ge=0, le=65535)
    """An orchestrator's port for gateways on other machines; 0 takes a free one."""
    keys_file: FilePath = ""
    """File with the cluster's keys, from `dyorc cluster-keys`; needed as soon as `host` is set."""
    lease_s: float = Field(default=3.0, gt=0)
    """An orchestrator that has not renewed its lease for so long has lost its lead."""
    operations_port: int | None = Field(default=None, ge=0, le=65535)
    """An orchestrator's port for health and metrics, where no key is needed, at `telemetry.metrics_host`; 0 takes a free one;
    None: none."""


class HistoriesConfig(_Section):
    """Histories of requests: what their workflows did, for `dyorc replay`. Off without a folder. They hold inputs and results."""

    folder: FilePath = ""
    """Folder for the files; empty: no request is recorded."""
    ratio: float = Field(default=1.0, ge=0, le=1)
    """Fraction of the requests that are recorded."""
    max_bytes: int = Field(default=256 * 2**20, ge=2**20)
    """Size of the folder; when it is full, the oldest file is removed."""
    max_value_bytes: int = Field(default=64 * 2**10, ge=0)
    """Of larger inputs and results, a history has only type and shape. In all, it holds at most 16 times as much."""
    tenants: tuple[str, ...] = ()
    """Tenants whose requests are recorded; `*` for all; none by default. Without keys, all requests are."""
    redact: tuple[str, ...] = ()
    """Names of workflows' inputs whose values are kept as digests only; what programs make of them is kept."""


class TelemetryConfig(_Section):
    """What can be seen of a running server."""

    metrics: bool = True
    """Whether there is a ``GET /metrics``."""
    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    """A separate port for ``/metrics``, where no key is needed; None: only the route next to the others."""
    metrics_host: Host = "127.0.0.1"
    """Address of that port. Clients that reach it see the names of workflows, programs and tenants, and all figures."""
    page: bool = True
    """Whether there is a live page, ``/ui``."""
    records: RecordsConfig = RecordsConfig()
    traces: TracesConfig = TracesConfig()
    logs: LogsConfig = LogsConfig()
    histories: HistoriesConfig = HistoriesConfig()


class ProgramOverrides(_Section):
    """Options of one program, in place of those in its code. What is not set stays as the code says."""

    max_batch_size: int | None = Field(default=None, ge=1)
    """Most calls in a batch."""
    max_batch_cost: float | None = Field(default=None, gt=0)
    """Most that the calls of a batch cost together, of a program whose code declares what a call costs."""
    max_resident_bytes: int | None = Field(default=None, ge=1)
    """Most bytes of residents in a process of its group; the smallest limit of the group counts."""
    num_replicas: Annotated[int, Field(ge=1)] | Literal["auto"] | None = None
    """Copies on Ray; "auto" scales between 1 and 100. Replaces an `autoscaling_config` in the code."""
    autoscaling_config: dict[str, Any] | None = None
    """Options of Ray Serve's autoscaling, e.g. ``{min_replicas = 0, max_replicas = 4}``. Replaces all of the code's."""
    num_cpus: float | None = Field(default=None, ge=0)
    """What Ray reserves of the processors for a replica."""
    num_gpus: float | None = Field(default=None, ge=0)
    """What Ray reserves of the devices for a replica; fractions too."""
    ray_actor_options: dict[str, Any] | None = None
    """Further options for Ray, added to those in the code."""
    in_process: bool | None = None
    """Whether it runs in the server's own process although others run on Ray."""
    warmup: bool | None = None
    """Whether a loaded program runs a batch of zeros before its first request."""
    execution_timeout_s: float | None = Field(default=None, gt=0)
    """After this long in one batch, a replica counts as hung and is replaced."""
    max_queued_calls: int | None = Field(default=None, ge=1)
    """While more than these wait, requests that need the program are refused."""
    plan: str | None = None
    """File of a plan that ``dyorc plan --inference`` wrote: the program then runs split over several processes."""

    @property
    def changes(self) -> Mapping[str, Any]:
        """What is set."""
        return {name: value for name, value in self if value is not None}


class Settings(_Section):
    """All settings of a server. Times are in seconds, sizes in bytes."""

    workflows: tuple[str, ...] = ()
    """What `dyorc serve` serves if its command line names nothing, such as ``app.py:classify`` or ``package.module:flow``."""
    app: str = ""
    """Your own ASGI application beside DyOrc's routes, such as ``app.py:api``; empty: none. For `dyorc serve` and `dyorc dev`."""
    in_process: bool = False
    """Whether all programs run in the server's own process, without Ray."""
    store: Secret = ""
    """Where jobs are kept: ``sqlite:///path``, or ``redis://host/0`` for several servers together; empty: a file in the user's
    state folder."""
    programs: dict[str, ProgramOverrides] = {}
    """Options of programs by their names, in place of those in their code."""

    engine: EngineConfig = EngineConfig()
    link: LinkConfig = LinkConfig()
    transport: TransportConfig = TransportConfig()
    deployment: DeploymentConfig = DeploymentConfig()
    cells: CellsConfig = CellsConfig()
    cluster: ClusterConfig = ClusterConfig()
    gateway: GatewayConfig = GatewayConfig()
    jobs: JobsConfig = JobsConfig()
    scaling: ScalingConfig = ScalingConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

    @property
    def orchestrator(self) -> OrchestratorConfig:
        """The sections that an orchestrator needs."""
        return OrchestratorConfig(engine=self.engine, scaling=self.scaling)
