"""Command-line options that `run`, `sweep` and `compare` share: the target, what is sent to it, and how much.

They come in groups, which `loadgen.command_options.grouped` shows to typer, and make a `TargetSpec`, a `Pool` and a `Load`.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dyorc.system.finite_option import finite
from dyorc.system.output_option import writable
from loadgen.errors import WorkerFailedError
from loadgen.load import Load
from loadgen.targets.base import RequestFailedError, TargetSpec

if TYPE_CHECKING:
    from loadgen.pool import Pool

_TARGET, _SENT, _LOAD = "Target", "What is sent", "Load"
_NUM_DRAWN = 64


class ArrivalsKind(StrEnum):
    """When requests are sent, by name."""

    POISSON = "poisson"
    GAMMA = "gamma"
    CONSTANT = "constant"
    RAMP = "ramp"
    TRACE = "trace"


def _option(panel: str, *names: str, text: str, min: float | None = None) -> typer.models.OptionInfo:
    return typer.Option(*names, help=text, rich_help_panel=panel, min=min, callback=finite)


Url: TypeAlias = Annotated[
    str, typer.Argument(help="http://host:port or https://host:port; for gRPC host:port or grpcs://host:port.")
]
Model: TypeAlias = Annotated[str, typer.Argument(help="The model's name; for raw requests, the path.")]
Label: TypeAlias = Annotated[str, typer.Option("--label", help="The target's name in results; by default its model.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """How to talk to a target."""

    protocol: Annotated[
        str, _option(_TARGET, "--protocol", text="http or grpc (Open Inference Protocol), raw, or package.module:function.")
    ] = "http"
    codec: Annotated[str, _option(_TARGET, "--codec", text="For raw: a module with pack(tensors) and unpack(body).")] = ""
    batch_dim: Annotated[bool, _option(_TARGET, "--batch-dim", text="Send tensors with a leading batch dimension of 1.")] = False
    header: Annotated[
        list[str] | None, _option(_TARGET, "--header", text="'Name: value', sent with each request; may be repeated.")
    ] = None
    max_connections: Annotated[
        int, _option(_TARGET, "--max-connections", text="The most HTTP connections that each worker opens.", min=1)
    ] = 1024
    stream: Annotated[bool, _option(_TARGET, "--stream", text="Ask for answers in parts, and measure the times of parts.")] = (
        False
    )
    ca: Annotated[
        Path | None,
        _option(_TARGET, "--ca", text="For TLS: a file of trusted authorities; by default the system's."),
    ] = None
    cert: Annotated[Path | None, _option(_TARGET, "--cert", text="For TLS: the client's certificate.")] = None
    key: Annotated[Path | None, _option(_TARGET, "--key", text="For TLS: the certificate's key, if in another file.")] = None

    def spec(self, url: str, model: str, protocol: str = "") -> TargetSpec:
        """Returns the target that the options name.

        Args:
            protocol: Takes precedence over the option, unless empty.

        Raises:
            ValueError: If options contradict each other.
        """
        protocol = protocol or self.protocol
        if protocol == "http":  # the default; a protocol of the user's may have such URLs, too
            protocol = protocol_of(url) or protocol
        if protocol not in ("http", "grpc", "raw") and ":" not in protocol:
            raise ValueError(f"--protocol is {protocol!r}, expected http, grpc, raw or package.module:function")
        if protocol == "raw" and not self.codec:
            raise ValueError("--protocol raw needs --codec MODULE with pack(tensors) and unpack(body)")
        if protocol in ("http", "raw") and not url.startswith(("http://", "https://")):
            raise ValueError(f"the URL is {url!r}, expected http://host:port or https://host:port")
        return TargetSpec(
            protocol=protocol,
            url=url,
            model=model,
            has_batch_dim=self.batch_dim,
            codec=self.codec,
            headers=dict(_header(line) for line in self.header or ()),
            max_connections=self.max_connections,
            ca=str(self.ca or ""),
            cert=str(self.cert or ""),
            key=str(self.key or ""),
            is_streamed=self.stream,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SentOptions:
    """What is sent."""

    pool: Annotated[
        Path | None,
        _option(
            _SENT,
            "--pool",
            text="The requests: a pool file, or an .npz with an array for each input, or rows of them; by default random.",
        ),
    ] = None
    shape: Annotated[
        list[str] | None,
        _option(_SENT, "--shape", text="NAME:1,2,3: the shape of an input that the model leaves open; may be repeated."),
    ] = None
    seed: Annotated[
        int, _option(_SENT, "--seed", text="With the same seed, the same requests are sent at the same times.", min=0)
    ] = 0

    def requests(self, spec: TargetSpec) -> "Pool":
        """Returns the pool, read from a file or drawn from the seed to fit the model's metadata.

        Raises:
            ValueError: If the file holds something else or inputs that the model does not have, or if the metadata does not
                say what to draw.
        """
        from loadgen.drawing import check_names, draw_pool, ranks_of, read_pool, shapes_of, split_rows

        if self.pool is not None:
            pool, ranks = read_pool(self.pool), ranks_of(spec)
            check_names(pool, ranks, spec.model)
            return split_rows(pool, ranks)
        return draw_pool(spec, shapes_of(self.shape or ()), seed=self.seed, num_requests=_NUM_DRAWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceOptions:
    """How much load, where a command does not choose that itself."""

    rate: Annotated[float | None, _option(_LOAD, "--rate", text="Mean requests per second (open loop).", min=0.001)] = None
    clients: Annotated[
        int | None,
        _option(_LOAD, "--clients", text="The number of clients, each with one request at a time (closed loop).", min=1),
    ] = None
    trace: Annotated[Path | None, _option(_LOAD, "--trace", text="For trace: timestamps (docs/reference/loadgen.md).")] = None
    start_rate: Annotated[float, _option(_LOAD, "--start-rate", text="For ramp: the rate at the start.", min=0)] = 0.0
    slo_ms: Annotated[
        float | None,
        _option(_LOAD, "--slo-ms", text="Latency limit in milliseconds; later answers do not count as goodput.", min=0.001),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """When requests are sent, and for how long."""

    arrivals: Annotated[ArrivalsKind, _option(_LOAD, "--arrivals", text="When requests are sent.")] = ArrivalsKind.POISSON
    cv: Annotated[float, _option(_LOAD, "--cv", text="For gamma: the gaps' coefficient of variation.", min=0.01)] = 4.0
    duration: Annotated[float, _option(_LOAD, "--duration", text="Measured time in seconds.", min=0.01)] = 5.0
    warm_up: Annotated[float, _option(_LOAD, "--warm-up", text="Seconds of the same load before the measured time.", min=0)] = 1.0
    drain: Annotated[float, _option(_LOAD, "--drain", text="Seconds to wait for the last answers.", min=0)] = 5.0
    workers: Annotated[int, _option(_LOAD, "--workers", text="Processes that share the load.", min=1)] = 1

    def load(self, pace: PaceOptions, seed: int) -> Load:
        """Returns the load that the options name.

        Raises:
            ValueError: If options contradict each other, or name no load.
        """
        is_closed, is_trace = pace.clients is not None, self.arrivals is ArrivalsKind.TRACE
        if is_closed and pace.rate is not None:
            raise ValueError("--clients sets a closed loop and --rate an open one, expected only one of them")
        if not is_closed and pace.rate is None and not is_trace:
            raise ValueError("no load is given, expected --rate (requests per second) or --clients (a closed loop)")
        if is_trace and pace.trace is None:
            raise ValueError("--arrivals trace needs --trace FILE")
        return Load(
            arrivals="closed" if is_closed else str(self.arrivals),
            rate_rps=pace.rate or 0.0,
            start_rps=pace.start_rate,
            cv=self.cv,
            trace=str(pace.trace or ""),
            num_clients=pace.clients or 1,
            warm_up_s=self.warm_up,
            duration_s=self.duration,
            drain_s=self.drain,
            slo_s=None if pace.slo_ms is None else pace.slo_ms / 1e3,
            num_workers=self.workers,
            seed=seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Where the results go."""

    out: Annotated[Path | None, typer.Option("--out", callback=writable, help="Write the results to this file, as JSON.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print only the results, as JSON.")] = False

    def write(self, written: bytes) -> None:
        """Writes the results to the file, if one is named."""
        if self.out is not None:
            self.out.write_bytes(written + b"\n")


def protocol_of(url: str) -> str:
    """Returns the protocol that a URL names, ``grpc`` or nothing: HTTP is the default, and others have URLs like it."""
    return "grpc" if url.startswith(("grpc://", "grpcs://")) else ""


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip() or "\n" in line or "\r" in line:
        raise ValueError(f"--header is {line!r}, expected 'Name: value'")
    return name.strip(), value.strip()


@contextmanager
def errors_as_one_line() -> Generator[None]:
    """Turns errors that a user can correct into one line and exit status 2, without a traceback."""
    from dyorc.errors import DyOrcError, without_errno

    try:
        yield
    except (ValueError, OSError, DyOrcError, RequestFailedError, WorkerFailedError) as error:
        typer.echo(f"error: {without_errno(str(error))}", err=True)
        raise typer.Exit(2) from None
