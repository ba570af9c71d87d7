"""What `run`, `sweep` and `compare` have in common on the command line: the target, what is sent to it, and how much.

Each option is an annotated type; the functions make a `TargetSpec`, a `Pool` and a `Load` of their values.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from loadgen.errors import WorkerFailedError
from loadgen.load import Load
from loadgen.targets.base import RequestFailedError, TargetSpec

if TYPE_CHECKING:
    from loadgen.pool import Pool

_TARGET, _SENT, _LOAD = "Target", "What is sent", "Load"


class ArrivalsKind(StrEnum):
    """When requests are sent, by name."""

    POISSON = "poisson"
    GAMMA = "gamma"
    CONSTANT = "constant"
    RAMP = "ramp"
    TRACE = "trace"


def _option(panel: str, *names: str, text: str, min: float | None = None) -> typer.models.OptionInfo:
    return typer.Option(*names, help=text, rich_help_panel=panel, min=min)


Url: TypeAlias = Annotated[
    str, typer.Argument(help="http://host:port or https://host:port; for gRPC host:port or grpcs://host:port.")
]
Model: TypeAlias = Annotated[str, typer.Argument(help="The model's name; the path for raw requests.")]
ProtocolName: TypeAlias = Annotated[
    str, _option(_TARGET, "--protocol", text="http or grpc (Open Inference Protocol), raw, or package.module:function.")
]
Codec: TypeAlias = Annotated[str, _option(_TARGET, "--codec", text="For raw: a module with pack(tensors) and unpack(body).")]
BatchDim: TypeAlias = Annotated[bool, _option(_TARGET, "--batch-dim", text="Send tensors with a batch dimension of 1 in front.")]
Headers: TypeAlias = Annotated[
    list[str] | None, _option(_TARGET, "--header", text="'Name: value', sent with each request; may be repeated.")
]
MaxConnections: TypeAlias = Annotated[
    int, _option(_TARGET, "--max-connections", text="HTTP connections of each worker at most.", min=1)
]
CaFile: TypeAlias = Annotated[
    Path | None, _option(_TARGET, "--ca", text="For TLS: a file of the authorities that are trusted; by default the system's.")
]
CertFile: TypeAlias = Annotated[Path | None, _option(_TARGET, "--cert", text="For TLS: our own certificate.")]
KeyFile: TypeAlias = Annotated[Path | None, _option(_TARGET, "--key", text="For TLS: its key, if that is a file of its own.")]

PoolFile: TypeAlias = Annotated[
    Path | None,
    _option(
        _SENT, "--pool", text="Requests: a file of loadgen.pool, or an .npz with one array for each input; drawn if left out."
    ),
]
Shapes: TypeAlias = Annotated[
    list[str] | None,
    _option(_SENT, "--shape", text="NAME:1,2,3, an input's shape if the model leaves it open; may be repeated."),
]
Seed: TypeAlias = Annotated[int, _option(_SENT, "--seed", text="The same seed sends the same at the same times.", min=0)]

Rate: TypeAlias = Annotated[float | None, _option(_LOAD, "--rate", text="Requests a second, on average (open loop).", min=0.001)]
Clients: TypeAlias = Annotated[
    int | None, _option(_LOAD, "--clients", text="Closed loop instead: so many clients, each with one request at a time.", min=1)
]
ArrivalsName: TypeAlias = Annotated[ArrivalsKind, _option(_LOAD, "--arrivals", text="When requests are sent.")]
Cv: TypeAlias = Annotated[float, _option(_LOAD, "--cv", text="For gamma: the gaps' coefficient of variation.", min=0.01)]
TraceFile: TypeAlias = Annotated[
    Path | None, _option(_LOAD, "--trace", text="For trace: a file of timestamps in seconds, one per line.")
]
StartRate: TypeAlias = Annotated[float, _option(_LOAD, "--start-rate", text="For ramp: the rate at the start.", min=0)]
Duration: TypeAlias = Annotated[float, _option(_LOAD, "--duration", text="Measured time in seconds.", min=0.01)]
WarmUp: TypeAlias = Annotated[float, _option(_LOAD, "--warm-up", text="Seconds of the same load before, not measured.", min=0)]
Drain: TypeAlias = Annotated[float, _option(_LOAD, "--drain", text="Seconds that the last answers are waited for.", min=0)]
SloMs: TypeAlias = Annotated[
    float | None, _option(_LOAD, "--slo-ms", text="An answer that takes longer (milliseconds) is no goodput.", min=0.001)
]
Workers: TypeAlias = Annotated[int, _option(_LOAD, "--workers", text="Processes that share the load.", min=1)]

Out: TypeAlias = Annotated[Path | None, typer.Option("--out", help="Write the results as JSON into this file.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the results as JSON, and nothing else.")]


def target_of(
    url: str,
    model: str,
    *,
    protocol: str = "http",
    codec: str = "",
    batch_dim: bool = False,
    header: Sequence[str] | None = None,
    max_connections: int = 1024,
    ca: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
) -> TargetSpec:
    """The target that options name.

    Raises:
        ValueError: If they contradict each other.
    """
    if protocol not in ("http", "grpc", "raw") and ":" not in protocol:
        raise ValueError(f"--protocol is {protocol!r}, expected http, grpc, raw or package.module:function")
    if protocol == "raw" and not codec:
        raise ValueError("--protocol raw needs --codec MODULE with pack(tensors) and unpack(body)")
    if protocol in ("http", "raw") and not url.startswith(("http://", "https://")):
        raise ValueError(f"the URL is {url!r}, expected http://host:port or https://host:port")
    return TargetSpec(
        protocol=protocol,
        url=url,
        model=model,
        has_batch_dim=batch_dim,
        codec=codec,
        headers=dict(_header(line) for line in header or ()),
        max_connections=max_connections,
        ca=str(ca or ""),
        cert=str(cert or ""),
        key=str(key or ""),
    )


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip() or "\n" in line or "\r" in line:
        raise ValueError(f"--header is {line!r}, expected 'Name: value'")
    return name.strip(), value.strip()


def pool_of(
    spec: TargetSpec, *, pool: Path | None = None, shape: Sequence[str] | None = None, seed: int = 0, num_drawn: int = 64
) -> "Pool":
    """What is sent: read from a file; or drawn from a seed, of the kind that the model's metadata asks for.

    Raises:
        ValueError: If the file holds something else, or the model leaves open what to draw.
    """
    from loadgen.drawing import draw_pool, read_pool, shapes_of

    if pool is not None:
        return read_pool(pool)
    return draw_pool(spec, shapes_of(shape or ()), seed=seed, num_requests=num_drawn)


def load_of(
    *,
    rate: float | None = None,
    clients: int | None = None,
    arrivals: str = "poisson",
    cv: float = 4.0,
    trace: Path | None = None,
    start_rate: float = 0.0,
    duration: float = 5.0,
    warm_up: float = 1.0,
    drain: float = 5.0,
    slo_ms: float | None = None,
    workers: int = 1,
    seed: int = 0,
) -> Load:
    """The load that options name.

    Raises:
        ValueError: If they contradict each other, or name none.
    """
    if clients is not None and rate is not None:
        raise ValueError("--clients is a closed loop and --rate an open one: expected one of them")
    if clients is None and rate is None and arrivals != "trace":
        raise ValueError("how much load? Expected --rate (requests a second) or --clients (a closed loop)")
    if arrivals == "trace" and trace is None:
        raise ValueError("--arrivals trace needs --trace FILE")
    return Load(
        arrivals="closed" if clients is not None else str(arrivals),
        rate_rps=rate or 0.0,
        start_rps=start_rate,
        cv=cv,
        trace=str(trace or ""),
        num_clients=clients or 1,
        warm_up_s=warm_up,
        duration_s=duration,
        drain_s=drain,
        slo_s=None if slo_ms is None else slo_ms / 1e3,
        num_workers=workers,
        seed=seed,
    )


@contextmanager
def told_plainly() -> Generator[None]:
    """Turns what a user can put right into one line and exit status 2, rather than a stack of calls."""
    from dyorc.errors import DyOrcError

    try:
        yield
    except (ValueError, OSError, DyOrcError, RequestFailedError, WorkerFailedError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
