"""Versions that are judged while clients use them: a good one is promoted, a bad one rolled back, with a reason."""

import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest

import dyorc
from dyorc.errors import ConflictError, InvalidInputError
from dyorc.testing import ServerProcess, serving
from tests.client_threads import ClientThreads
from tests.deadlines import TIMEOUT_S, wait_until
from tests.e2e.test_sticky_versions import BODY, USERS, deployed
from tests.e2e.updates import App, X
from tests.server_process import client_of

FAST = {"DYORC_DEPLOYMENT__JUDGE_INTERVAL_S": "0.1"}
RULES = """
steps = [20, 50, 100]
min_requests = 20

[latency]
max_p50_s = 0.15

[errors]
max_ratio = 0.05
"""
_SLOW_PROGRAM = """
import time

@dyorc.program
def slow(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    time.sleep(0.2)
    return x

@dyorc.workflow"""


def slow(text: str) -> str:
    """Makes a version slow."""
    return text.replace("@dyorc.workflow", _SLOW_PROGRAM).replace("plus(double(x))", "plus(slow(double(x)))")


def raising(text: str) -> str:
    """Makes a version fail."""
    return text.replace("return plus", "raise ValueError('broken')\n    return plus")


def refusing(text: str) -> str:
    """Makes a version refuse what the other takes."""
    return text.replace("return plus", "raise dyorc.InvalidInputError('no such input')\n    return plus")


class Users(ClientThreads):
    """Users who ask again and again, each by a header.

    Attributes:
        versions: The versions that answered each user, in order, without repetitions.
    """

    def __init__(self, server: ServerProcess) -> None:
        self.versions: dict[str, list[str]] = {user: [] for user in USERS}
        self.num_failed = 0
        self._server = server
        super().__init__(partial(self._ask, USERS[number::4]) for number in range(4))

    def _ask(self, users: Sequence[str]) -> None:
        with client_of(self._server) as http:
            while not self.is_over.is_set():
                for user in users:
                    self._ask_as(http, user)

    def _ask_as(self, http: httpx.Client, user: str) -> None:
        answer = http.post("/v2/models/flow/infer", json=BODY, headers={"X-User": user})
        if answer.status_code != 200:
            self.num_failed += 1
            return
        version = str(answer.json()["model_version"])
        if self.versions[user][-1:] != [version]:
            self.versions[user].append(version)


@contextmanager
def used(app: App, *options: str, in_process: bool = True) -> Generator[tuple[ServerProcess, dyorc.Client, Users]]:
    """Serves the workflow to users."""
    with (
        serving(app.target, *options, in_process=in_process, environment=FAST) as server,
        dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client,
        Users(server) as users,
    ):
        yield server, client, users


def wait_for_verdict(client: dyorc.Client) -> tuple[bool, str]:
    """Returns whether the version was promoted, and why."""
    wait_until(lambda: client.deployments()["flow"]["verdict"] is not None, "the version is judged")
    verdict = client.deployments()["flow"]["verdict"]
    return verdict["is_promoted"], verdict["reason"]


def judged(server: ServerProcess, app: App, rules: str, *options: str) -> str:
    """Deploys with rules."""
    file = app.folder / "rules.toml"
    file.write_text(rules)
    return deployed(server, app.target, "--judge", str(file), *options)


@pytest.mark.parametrize("mode", ["cell", "cells", pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.ray])])
def test_a_good_version_is_promoted_and_no_user_goes_back(tmp_path: Path, mode: str) -> None:
    app = App(tmp_path)
    options = ("--cells", "2") if mode == "cells" else ()
    with used(app, *options, in_process=mode != "ray") as (server, client, users):
        app.write(2)
        printed = judged(server, app, RULES, "--sticky", "x-user", "--shadow", "20")
        assert "flow: version 2 is judged, step 1 of 2 (20%)" in printed
        assert wait_for_verdict(client)[0]
        now = client.deployments()["flow"]
        assert (now["default"], now["shares"], now["canary"]) == ("2", {}, None)
        wait_until(lambda: all(seen[-1:] == ["2"] for seen in users.versions.values()), "all users have it")
        assert "flow: version 2 was promoted at 50%" in deployed(server)
        assert client.rollback("flow")["default"] == "1", "one step undoes the canary"
    assert users.num_failed == 0
    assert all(seen[:3] in (["1", "2"], ["2"], ["1", "2", "1"], ["2", "1"]) for seen in users.versions.values()), "nobody wavered"


@pytest.mark.parametrize("mode", ["cell", "cells", pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.ray])])
@pytest.mark.parametrize(
    ("change", "number", "rules", "options", "reason"),
    [
        (slow, 1, RULES, (), "(latency.max_p50_s)"),
        (raising, 1, RULES, (), "requests failed (workflow "),
        (refusing, 1, RULES, (), "requests were refused (invalid_input "),
        (str, 2, RULES + "[differences]\nmax_ratio = 0.1\n", ("--shadow", "100"), "in 2 of 2 elements, by up to 1"),
    ],
    ids=["slow", "raises", "refuses", "differs"],
)
def test_a_bad_version_is_rolled_back_with_its_reason(
    tmp_path: Path, change: Callable[[str], str], number: int, rules: str, options: Sequence[str], reason: str, mode: str
) -> None:
    app = App(tmp_path)
    cells = ("--cells", "2") if mode == "cells" else ()
    with used(app, *cells, in_process=mode != "ray") as (server, client, _):
        app.write(number, change)
        judged(server, app, rules, "--canary", "20", *options)
        is_promoted, text = wait_for_verdict(client)
        assert not is_promoted
        assert reason in text
        now = client.deployments()["flow"]
        assert (now["default"], now["shares"], now["canary"], now["can_roll_back"]) == ("1", {}, None, False)
        assert reason in deployed(server)
        assert "canary_rolled_back" in server.output
        np.testing.assert_array_equal(client.infer("flow", x=X), [3, 5])
        wait_until(lambda: set(client.status()["programs"]) == {"double", "plus"}, "nothing is left of it")


def test_a_step_goes_on_when_the_server_starts_again(tmp_path: Path) -> None:
    app = App(tmp_path)
    environment = {**FAST, "DYORC_STORE": f"sqlite://{tmp_path}/store.sqlite"}
    rules = RULES.replace("min_requests = 20", "min_requests = 100_000")
    with serving(app.target, in_process=True, environment=environment) as server:
        app.write(2)
        judged(server, app, rules)
        server.process.kill()
        server.process.wait()
    with (
        serving(app.target, in_process=True, environment=environment) as server,
        dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client,
    ):
        canary = client.deployments()["flow"]["canary"]
        assert (canary["version"], canary["step"], canary["steps"]) == ("2", 0, [0.2, 0.5])
        wait_until(lambda: "flow" in client.status()["canaries"], "it is judged again")
        assert client.status()["canaries"]["flow"] == "0 of 100000 requests (min_requests)"
        assert "0 of 100000 requests" in deployed(server)
        assert client.deploy(app.target, share=0.3)["canary"] is None, "who decides by hand ends the judging"


def test_rules_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    app = App(tmp_path)
    file = tmp_path / "rules.toml"
    with serving(app.target, in_process=True) as server, dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client:
        app.write(2)
        for text, message in (
            ("[latency]\nmax_p98_s = 1", "'latency.max_p98_s' is no rule; known are latency.max_p50_factor"),
            ("steps = [10", f"{file}: "),
        ):
            file.write_text(text)
            command = [
                sys.executable,
                "-P",
                "-m",
                "dyorc.cli.main",
                "deploy",
                app.target,
                "--judge",
                str(file),
                "--url",
                server.url,
            ]
            run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            assert run.returncode != 0
            assert message in " ".join(run.stderr.split())
        rules = {"errors": {"max_ratio": 0.1}}
        with pytest.raises(InvalidInputError, match=r"errors\.max_ratio is 7"):
            client.deploy(app.target, rules={"errors": {"max_ratio": 7}})
        with pytest.raises(InvalidInputError, match="the share is 1; a version that is judged begins with more than 0"):
            client.deploy(app.target, share=1, rules=rules)
        with pytest.raises(InvalidInputError, match="differences needs copies of requests; give --shadow PERCENT"):
            client.deploy(app.target, rules={"differences": {"max_ratio": 0.1}})
        client.deploy(app.target, version="blue", share=0.1)
        app.write(3)
        with pytest.raises(ConflictError, match="cannot be judged while version 'blue' has a share"):
            client.deploy(app.target, rules=rules)
        assert client.deployments()["flow"]["canary"] is None
