"""Rules of machines as commands, and commands as rules again."""

import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dyorc.cli.plan import app
from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster, Interface, even_cluster, write_cluster
from dyorc.planner.network import MachineRules, ovs_rules, rules_of, tc_rules, to_ovs, to_tc
from dyorc.planner.plan import Limit, MeshAxis, Network, PlanBuilder, Provenance
from dyorc.planner.plan.plan_file import write_plan
from dyorc.planner.program import REPLICATE, TensorProgram, Value, ValueKind
from tests.deadlines import wait_until

_FORMS = {"ovs": (to_ovs, ovs_rules), "tc": (to_tc, tc_rules)}


def _cluster() -> Cluster:
    cluster = even_cluster(3, bytes_per_s=3000)
    interfaces = [
        Interface(machine=machine, name=f"eth{i}", bytes_per_s=1000.0 * (1 + i), address=f"10.{i}.0.{number + 1}")
        for number, machine in enumerate(cluster.machines)
        for i in (0, 1)
    ]
    return replace(cluster, interfaces=tuple(interfaces))


def _network(*, is_strict: bool) -> Network:
    limits = [("machine-1", "eth0", 250.0), ("machine-1", "eth1", 2000.0), ("machine-2", "eth0", 700.0)]
    return Network(
        limits=tuple(Limit(source="machine-0", target=t, interface=i, bytes_per_s=rate) for t, i, rate in limits),
        is_strict=is_strict,
    )


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("form", _FORMS)
def test_commands_become_the_same_rules_again(form: str, is_strict: bool) -> None:
    rules = rules_of(_network(is_strict=is_strict), _cluster())
    assert list(rules) == ["machine-0"]
    emit, parse = _FORMS[form]
    assert parse(emit(rules["machine-0"])) == rules["machine-0"]
    one = rules_of(_network(is_strict=is_strict), replace(_cluster(), interfaces=_cluster().interfaces[:2]))
    assert one["machine-0"].queues[0].max_bits_per_s == (2000 if is_strict else 8000)


def test_the_commands() -> None:
    rules = rules_of(_network(is_strict=False), _cluster())["machine-0"]
    assert to_ovs(rules).splitlines() == [
        "ovs-vsctl -- set port eth0 qos=@qos -- --id=@qos create qos type=linux-htb other-config:max-rate=8000 "
        "queues:1=@q1 queues:2=@q2 -- --id=@q1 create queue other-config:min-rate=2000 other-config:max-rate=8000 "
        "-- --id=@q2 create queue other-config:min-rate=5600 other-config:max-rate=8000",
        "ovs-vsctl -- set port eth1 qos=@qos -- --id=@qos create qos type=linux-htb other-config:max-rate=16000 "
        "queues:1=@q1 -- --id=@q1 create queue other-config:min-rate=16000 other-config:max-rate=16000",
        'ovs-ofctl add-flow br0 "priority=100,ip,nw_dst=10.0.0.2,actions=set_queue:1,normal"',
        'ovs-ofctl add-flow br0 "priority=100,ip,nw_dst=10.0.0.3,actions=set_queue:2,normal"',
        "ip route replace 10.0.0.2/32 table 101 nexthop dev eth0 weight 32 nexthop dev eth1 weight 256",
        "ip rule add to 10.0.0.2/32 table 101 priority 1101",
        "ip route replace 10.0.0.3/32 table 102 dev eth0",
        "ip rule add to 10.0.0.3/32 table 102 priority 1102",
    ]
    assert "tc class replace dev eth0 parent 1:1 classid 1:102 htb rate 5600bit ceil 8000bit quantum 60000" in to_tc(rules)


@pytest.mark.parametrize(
    ("parse", "emit", "old", "new", "error"),
    [
        (ovs_rules, to_ovs, "linux-htb", "linux-sfq", r"line 1: expected --id=@qos create qos type=linux-htb .*, found"),
        (ovs_rules, to_ovs, "queues:2=@q2 ", "", "line 1: expected each queue named once and made once"),
        (ovs_rules, to_ovs, "min-rate=5600", "min-rate=fast", "expected other-config:min-rate=NUMBER, found"),
        (ovs_rules, to_ovs, ",normal", ",drop", r"line 3: expected priority=100,ip,nw_dst=ADDRESS,.*, found"),
        (tc_rules, to_tc, "rate 5600bit", "rate 5600", "expected bits a second, such as 5bit, found .5600"),
        (tc_rules, to_tc, "u32 match", "flower match", r"expected parent 1: protocol ip prio 1 u32 .*, found"),
        (tc_rules, to_tc, "nexthop dev eth0 weight", "nexthop dev eth0 metric", "expected nexthop dev NAME weight NUMBER"),
        (tc_rules, to_tc, "ip rule add", "rm -r", "expected tc qdisc, tc class, tc filter or ip, found"),
    ],
)
def test_other_commands_are_refused_with_the_line(
    parse: Callable[[str], MachineRules], emit: Callable[[MachineRules], str], old: str, new: str, error: str
) -> None:
    text = emit(rules_of(_network(is_strict=False), _cluster())["machine-0"])
    assert old in text
    with pytest.raises(PlanError, match=error):
        parse(text.replace(old, new))


def test_limits_that_do_not_fit_are_refused() -> None:
    network, cluster = _network(is_strict=True), _cluster()
    wide = replace(network, limits=(replace(network.limits[0], bytes_per_s=900), *network.limits[1:]))
    with pytest.raises(PlanError, match="promises 12800 bits a second through eth0 of machine-0, which has 8000"):
        rules_of(wide, cluster)
    with pytest.raises(PlanError, match="limits interface eth1 of machine-0, which has eth0"):
        rules_of(network, replace(cluster, interfaces=()))


_TOOLS = ("ovs-ofctl", "ovs-vsctl", "ovsdb-tool", "ovsdb-server")


def test_open_vswitch_takes_the_commands(tmp_path: Path) -> None:
    """Its parser of flows, and a dry run against a database of its own: no switch is asked."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"there is no command {missing[0]!r} (package openvswitch-switch)")
    lines = to_ovs(rules_of(_network(is_strict=True), _cluster())["machine-0"]).splitlines()
    flows = [shlex.split(line)[-1] for line in lines if line.startswith("ovs-ofctl")]
    (tmp_path / "flows").write_text("\n".join(flows) + "\n")
    assert _ran("ovs-ofctl", "parse-flows", str(tmp_path / "flows")).count("set_queue") == 2
    schema = Path(shutil.which("ovs-vsctl") or "").parents[1] / "share/openvswitch/vswitch.ovsschema"
    database, address = tmp_path / "conf.db", f"unix:{tmp_path}/db.sock"
    _ran("ovsdb-tool", "create", str(database), str(schema))
    server = subprocess.Popen(
        ["ovsdb-server", str(database), f"--remote=p{address}", "--no-chdir", f"--unixctl={tmp_path}/control"],
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until((tmp_path / "db.sock").exists, "the database answers")
        prefix = ["ovs-vsctl", "--no-wait", f"--db={address}"]
        _ran(*prefix, "add-br", "br0", "--", "add-port", "br0", "eth0", "--", "add-port", "br0", "eth1")
        for line in lines:
            if line.startswith("ovs-vsctl"):
                _ran(*prefix, "--dry-run", *shlex.split(line)[1:])
    finally:
        server.terminate()
        server.wait()


def _ran(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_command_prints_the_rules_of_a_plan(tmp_path: Path) -> None:
    value = Value(name="x", shape=(2,), dtype="float32", kind=ValueKind.INPUT)
    program = TensorProgram(name="none", values={"x": value}, nodes=(), inputs=("x",), loss="x", gradients={})
    builder = PlanBuilder(program)
    builder.mesh("one", [MeshAxis(name="one", size=1)], [0])
    builder.source("x", "one", [REPLICATE])
    builder.result("x", "one", [REPLICATE])
    plan, path, cluster = builder.build(Provenance(planner="test")), tmp_path / "plan.json", tmp_path / "cluster.toml"
    write_plan(replace(plan, network=_network(is_strict=True)), path)
    write_cluster(_cluster(), cluster)
    for form, (emit, _) in _FORMS.items():
        ran = CliRunner().invoke(app, ["network", str(path), "--cluster", str(cluster), "--format", form])
        assert ran.exit_code == 0, ran.output
        assert emit(rules_of(_network(is_strict=True), _cluster())["machine-0"]) in ran.output
