"""Files that people write or that other programs hand on: plans, settings, rules, keys, traces, clusters."""

import re
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from dyorc.core.plan_head import read_plan_head
from dyorc.errors import ConfigurationError, InvalidInputError, PlanError
from dyorc.gateway.access import Access
from dyorc.gateway.keys import read_tenants, write_tenants
from dyorc.planner.cluster.cluster_file import load_cluster
from dyorc.planner.plan.plan_file import plan_from_json, plan_to_json, read_plan
from dyorc.protocol.canary_rules import read_rules_file
from dyorc.settings.checking import problems_in
from dyorc.settings.settings_reader import check_layers
from dyorc.settings.settings_sources import environment_layer
from dyorc.traffic.request_traces import read_trace, write_trace
from dyorc.transport.cluster_network import read_keys, write_new_keys
from tests.fuzz.contract import FuzzTarget, InputForm, check

_TOML_WORDS = (
    b"[[", b"]]", b"'''", b'"""', b"inf", b"-nan", b"1e400", b"0x7fffffffffffffffff",
    b"1979-05-27T07:32:00.999999-07:00", b"00:00:00",
    b"0001-01-01", b"9999-12-31T23:59:59-23:59", b"\\uD800", b"\\U0010FFFF", b"a.b.c", b"= {", b"\xef\xbb\xbf", b"true",
    b"1_000", b"x = 1\n",
)  # fmt: skip


def _of_file(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Returns a function that writes its input to a file and has it read."""

    def read_bytes(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return read_bytes


# Plans

_EXPECTED_DIGEST = re.compile(r"found '([0-9a-f]{64})'")
_DIGEST = re.compile(rb'"digest": ?"[^"]*"')
PLAN_SEEDS = Path(__file__).parent / "corpus" / "plan_files"


def _read_plan(path: Path) -> None:
    """Reads a plan with the digest that somebody who changed it on purpose would have written."""
    try:
        plan = read_plan(path)
    except PlanError as error:
        if (match := _EXPECTED_DIGEST.search(str(error))) is None:
            raise
        path.write_bytes(_DIGEST.sub(b'"digest":"%b"' % match[1].encode(), path.read_bytes(), count=1))
        plan = read_plan(path)
    check(plan_from_json(plan_to_json(plan)) == plan, "the plan is read as another than was written")


def build_plans(folder: Path) -> FuzzTarget:
    """Returns the target for plans, as the planner reads them."""
    return FuzzTarget(
        name="plan_files",
        read=_of_file(folder / "plan.json", _read_plan),
        errors=(PlanError,),
        seeds=tuple(file.read_bytes() for file in sorted(PLAN_SEEDS.glob("seed-*"))),
        form=InputForm.JSON,
        words=(
            b"S0(8*4,6)",
            b"S0(1*9999999999)",
            b"S0(2*3*4)",
            b"S99999999999999999999(1)",
            b'{"input": 0}',
            b'{"float": "nan"}',
            b"R|P",
        ),
    )


def build_plan_heads(folder: Path) -> FuzzTarget:
    """Returns the target for plans, as the server reads their heads."""
    seeds = [file.read_bytes() for file in sorted(PLAN_SEEDS.glob("seed-*"))]
    head = (
        b'{"format":"dyorc-plan","version":2,"digest":"d","meshes":[{"name":"m","axes":[["x",2,false]],"ranks":[0,1]}],'
        b'"inference":{"inputs":["x"],"outputs":["y"],"max_samples":4,"batch_dims":{"x":[0]},"is_proved":true}}'
    )
    numbers = iter(range(2**62))

    def read(data: bytes) -> None:
        path = folder / f"{next(numbers)}.json"  # another name each time: heads are remembered by it
        path.write_bytes(data)
        try:
            read_plan_head(str(path))
        finally:
            path.unlink()

    return FuzzTarget(name="plan_heads", read=read, errors=(PlanError,), seeds=(head, *seeds[:1]), form=InputForm.JSON)


# Configuration

_SETTINGS = b"""workflows = ["app.py:classify"]

[gateway]
port = 8080
max_header_bytes = 4096
cors_origins = ["http://a"]

[telemetry.logs]
level = "debug"

[programs.small]
num_replicas = 2
max_batch_size = 8
batch_wait_timeout_s = 0.01
"""


def build_settings(folder: Path) -> FuzzTarget:
    """Returns the target for `dyorc.toml`."""
    return FuzzTarget(
        name="settings_files",
        read=_of_file(folder / "dyorc.toml", problems_in),
        errors=(),
        seeds=(_SETTINGS,),
        form=InputForm.LINES,
        words=(*_TOML_WORDS, b"[gateway.", b"[[programs.small]]\n", b"keys_file = ", b"[programs.'a.b']\n", b"programs = 1\n"),
    )


def _read_environment(data: bytes) -> None:
    lines = data.decode("utf-8", "surrogateescape").replace("\0", "").splitlines()
    pairs = [line.partition("=") for line in lines if line.startswith("DYORC_") and "=" in line]
    variables = {name: value for name, _, value in pairs}
    with mock.patch.dict("os.environ", variables):
        check_layers([environment_layer(variables)])


def build_environment() -> FuzzTarget:
    """Returns the target for variables of the environment."""
    return FuzzTarget(
        name="environment",
        read=_read_environment,
        errors=(ConfigurationError,),
        seeds=(
            b'DYORC_GATEWAY__PORT=80\nDYORC_WORKFLOWS=["app.py:classify"]\nDYORC_TELEMETRY={"logs": {"level": "debug"}}\n',
            b'DYORC_PROGRAMS={"small": {"num_replicas": 2}}\nDYORC_PROGRAMS__SMALL__MAX_BATCH_SIZE=8\nDYORC_GATEWAY={}\n',
        ),
        form=InputForm.LINES,
        words=(
            b"DYORC_GATEWAY__=",
            b"DYORC___=1\n",
            b"DYORC_PROGRAMS__=1\n",
            b"DYORC_PROGRAMS__A__B__C=[]\n",
            b"{}",
            b"null",
            b"NaN",
            b"1e400",
        ),
    )


# Rules, keys

_RULES = b"""steps = [10, 50, 100]
min_requests = 100
min_step_s = 1.5
max_step_s = 60
latency = {max_p50_factor = 1.5, max_p99_s = 2}

[errors]
max_ratio = 0.1
[differences]
max_ratio = 0.5
min_compared = 10
"""


def build_rules(folder: Path) -> FuzzTarget:
    """Returns the target for rules by which versions are judged."""
    return FuzzTarget(
        name="rules_files",
        read=_of_file(folder / "rules.toml", read_rules_file),
        errors=(ConfigurationError,),
        seeds=(_RULES,),
        form=InputForm.LINES,
        words=(*_TOML_WORDS, b"max_p50_s = nan\n", b"steps = []\n", b"[latency]\n", b"max_increase = 1\n"),
    )


_KEYS = b"""[[tenant]]
name = "search"
weight = 2.0
max_requests = 100
max_bytes = 268435456
max_requests_per_s = 50.0
models = ["classify"]
keys = [
    {id = "0123456789ab", sha256 = "%b", expires = 2027-01-01T00:00:00Z, highest_priority = 5, may_manage = true, note = "a"},
]
[[tenant]]
name = "other"
""" % (b"0" * 64)


def _read_keys(path: Path) -> None:
    tenants = read_tenants(path)
    Access(str(path))
    write_tenants(path, tenants)
    again = read_tenants(path)
    check(again == tenants, f"{tenants} came back as {again}")


def build_keys(folder: Path) -> FuzzTarget:
    """Returns the target for files of API keys."""
    return FuzzTarget(
        name="keys_files",
        read=_of_file(folder / "keys.toml", _read_keys),
        errors=(ConfigurationError,),
        seeds=(_KEYS,),
        form=InputForm.LINES,
        words=(*_TOML_WORDS, b'"\\u007f"', b"expires = 0001-01-01T00:00:00+23:59", b"weight = nan\n", b'note = "\\b"'),
    )


def build_cluster_keys(folder: Path) -> FuzzTarget:
    """Returns the target for keys of clusters."""
    path = folder / "cluster-keys.json"
    write_new_keys(path)
    return FuzzTarget(
        name="cluster_keys",
        read=_of_file(path, lambda path: read_keys(str(path))),
        errors=(ConfigurationError,),
        seeds=(path.read_bytes(), b'{"seed": "%b"}' % (b"s" * 40)),
        form=InputForm.JSON,
    )


# Traces, clusters


def _read_trace(path: Path) -> None:
    requests = read_trace(path)
    if all(abs(request.time_s) < 1e9 and (request.branch or 0) < 0.999999 for request in requests):
        write_trace(path, requests)
        names = [request.workflow for request in read_trace(path)] if requests else []
        check(names == [request.workflow for request in requests], f"{requests} came back with the workflows {names}")


def build_traces(folder: Path) -> FuzzTarget:
    """Returns the target for traces."""
    return FuzzTarget(
        name="trace_files",
        read=_of_file(folder / "trace.csv", _read_trace),
        errors=(InvalidInputError,),
        seeds=(
            b"time_s,workflow,branch\n0.5,classify,0.25\n1.5,other,\n",
            b'{"time_s": 0.5, "workflow": "classify", "branch": 0.25}\n{"time_s": 1}\n',
            b"0.5\n1.5\n2\n",
            b'workflow,time_s\n"a, ""b""",1\n',
        ),
        form=InputForm.LINES,
        words=(
            b'"',
            b'"\n',
            b",",
            b"time_s",
            b"1e400",
            b"nan",
            b"1_0",
            b"\x85",
            b"\xe2\x80\xa8",
            b"\x1c",
            b"[[[[",
            b'{"time_s": 1}',
        ),
    )


_CLUSTER = b"""name = "two"

[[machines]]
name = "a"
inside = {bytes_per_s = 48e9, latency_s = 5e-6}

[[machines.devices]]
name = "gpu"
count = 2
flops_per_s = 1e12
memory_bytes = 16_000_000

[[collectives]]
kind = "all_gather"
algorithm = "padded"
bytes_per_s = 8e8
latency_s = 1e-4
"""


def build_clusters(folder: Path) -> FuzzTarget:
    """Returns the target for descriptions of clusters."""
    return FuzzTarget(
        name="cluster_files",
        read=_of_file(folder / "cluster.toml", load_cluster),
        errors=(PlanError,),
        seeds=(_CLUSTER,),
        form=InputForm.LINES,
        words=_TOML_WORDS,
    )
