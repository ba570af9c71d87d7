"""`dyorc config check`: every error, with its line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dyorc.cli.config import app
from dyorc.settings.checking import problems_in

FLOW = """
import numpy as np
from jaxtyping import Float
import dyorc
@dyorc.program
def double(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    return x * 2
@dyorc.program(batched=False)
def single(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    return x * 2
@dyorc.workflow
async def twice(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    return double(single(x))
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file's name."""
    monkeypatch.chdir(tmp_path)
    return Path("dyorc.toml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("prot = 3", "1: prot: there is no such setting (did you mean link.port or cluster.port or gateway.port?)"),
        ("\nport = 3", "2: port: there is no such setting (did you mean link.port or cluster.port or gateway.port?)"),
        ("[gatway]\nport = 1", "1: gatway: there is no such setting (did you mean gateway?)"),
        ("[gateway]\nprt = 1", "2: gateway.prt: there is no such setting (did you mean gateway.port?)"),
        ("[gateway]\nxyzxyz = 1", "2: gateway.xyzxyz: there is no such setting"),
        ("gateway.port = '80a'", "1: gateway.port is '80a', expected a valid integer"),
        ("[gateway]\n\nport = 70000", "3: gateway.port is 70000, expected a number less than or equal to 65535"),
        ("gateway = 1", "1: gateway is 1, expected a table"),
        ("gateway.port = '80'", "1: gateway.port is '80', expected a valid integer"),
        ("gateway.port = true", "1: gateway.port is True, expected a valid integer"),
        ("in_process = 1", "1: in_process is 1, expected a valid boolean"),
        ("engine.max_overtaking_s = inf", "1: engine.max_overtaking_s is inf, expected a finite number"),
        ("workflows = 'a.py:x'", "1: workflows is 'a.py:x', expected an array"),
        ("gateway.port = 1979-05-27", "1: gateway.port is '1979-05-27', expected a valid integer"),
        ("in_process = []", "1: in_process is an array, expected a valid boolean"),
        ("workflows = [\n'package.module:x',\n3]", "3: workflows.1 is 3, expected a valid string"),
        ("telemetry.traces.protocol = 'udp'", "1: telemetry.traces.protocol is 'udp', expected '', 'grpc' or 'http/protobuf'"),
        ("cells.num_cells = 0", "1: cells.num_cells is 0, expected a number greater than or equal to 1 or 'auto'"),
        ("[programs.a]\nmax_batch_size = 0", "2: programs.a.max_batch_size is 0, expected a number greater than or equal to 1"),
        ("programs.a.warmpu = 2", "1: programs.a.warmpu: there is no such setting (did you mean programs.a.warmup?)"),
        (
            "[programs.a]\nnum_replicas = 2\nautoscaling_config.max_replicas = 3",
            "1: programs.a: num_replicas is 2, with autoscaling_config; set one of them",
        ),
        (
            "[programs.a]\nautoscaling_config.max = 3",
            "1: programs.a: autoscaling_config has no option 'max'",
        ),
        ("store = 5", "1: store is not shown, expected a valid string"),
        ("jobs.webhook_secrt = 'hidden'", "1: jobs.webhook_secrt: there is no such setting (did you mean jobs.webhook_secret?)"),
        ("jobs = 'hidden'", "1: jobs is not shown, expected a table"),
    ],
)  # fmt: skip
def test_each_error_is_named_with_line_key_and_what_was_expected(text: str, problem: str, file: Path) -> None:
    file.write_text(text)
    (found,) = problems_in(file)
    assert found.startswith(f"dyorc.toml:{problem}")


def test_all_errors_are_named_at_once(file: Path) -> None:
    file.write_text("in_process = 'perhaps'\n[gateway]\nport = -1\nhots = 'x'\n[programs.a]\nmax_batch_size = 'x'\n")
    assert [line.split(":")[1] for line in sorted(problems_in(file))] == ["1", "3", "4", "6"]


def test_what_is_not_toml_is_named_with_its_line(file: Path) -> None:
    file.write_text("a = 1\nb = \n")
    assert problems_in(file) == ["dyorc.toml is not valid TOML: Invalid value (at line 2, column 5)"]
    file.write_bytes(b"a = '\xff'")
    assert problems_in(file)[0].startswith("configuration file dyorc.toml cannot be read: ")


def test_the_environment_hides_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYORC_GATEWAY__PORT", "1")
    file.write_text("gateway.port = 'x'")
    assert len(problems_in(file)) == 1


def test_files_that_are_missing_are_named(file: Path, tmp_path: Path) -> None:
    file.write_text("workflows = ['flow.py:x']\n[gateway]\nkeys_file = 'keys.toml'\n")
    assert problems_in(file) == [
        f"dyorc.toml:1: there is no file {tmp_path}/flow.py",
        f"dyorc.toml:3: gateway.keys_file: there is no file {tmp_path}/keys.toml",
    ]


def test_programs_are_checked_when_the_workflows_are_loaded(file: Path) -> None:
    Path("checked_flow.py").write_text(FLOW)
    file.write_text(
        "workflows = ['checked_flow.py:twice', 'checked_flow.py:thrice']\n[programs.double]\nmax_batch_size = 4\n"
        "[programs.dubble]\nnum_gpus = 1\n[programs.single]\nmax_batch_size = 2\n"
    )
    assert problems_in(file) == []
    missing, unknown, single = problems_in(file, is_loading=True)
    assert missing.startswith("dyorc.toml:1: ")
    assert missing.endswith("checked_flow.py has no workflow or program 'thrice'; it has ['double', 'single', 'twice']")
    assert unknown == "dyorc.toml:4: unknown program 'dubble' in the settings; known programs: ['double', 'single']"
    assert single.startswith("dyorc.toml:6: program 'single', as set from outside its code: max_batch_size is 2")


def test_the_command_ends_with_1_if_something_is_wrong(file: Path) -> None:
    file.write_text("gateway.port = 1")
    good = CliRunner().invoke(app, ["check"])
    assert (good.exit_code, good.stdout) == (0, "dyorc.toml is good.\n")
    file.write_text("workflows = ['missing.nowhere:nope']")
    unloaded = CliRunner().invoke(app, ["check"])
    assert unloaded.exit_code == 0
    assert "Workflows and programs were not checked: `dyorc config check --load`" in unloaded.stdout
    assert CliRunner().invoke(app, ["check", "--load"]).exit_code == 1
    file.write_text("gateway.port = 'x'")
    bad = CliRunner().invoke(app, ["check", "dyorc.toml"])
    assert bad.exit_code == 1
    assert "dyorc.toml:1: gateway.port is 'x'" in bad.stderr
