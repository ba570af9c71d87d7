"""Alert rules and boards: they use only metrics that exist, Prometheus understands them, and alerts fire when they should."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dyorc.telemetry.metrics.catalogue import CATALOGUE

_DEPLOY = Path(__file__).parents[3] / "deploy"
_RULES = _DEPLOY / "prometheus" / "dyorc.rules.yml"
_BOARDS = sorted((_DEPLOY / "grafana").glob("*.json"))
_PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(_PROMTOOL is None, reason="promtool is not installed (Debian: apt install prometheus)")

_NAME = re.compile(r"(?<![:\w])dyorc_\w+")
SERIES = {name: metric for metric in CATALOGUE for name in metric.series}


def promtool(*arguments: str | Path) -> None:
    """Runs promtool, which says what it does not like."""
    assert _PROMTOOL is not None
    done = subprocess.run([_PROMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def rule_queries() -> Iterator[str]:
    for group in yaml.safe_load(_RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


def board_queries(board: dict[str, Any]) -> Iterator[str]:
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def variable_queries(board: dict[str, Any]) -> Iterator[str]:
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


def queries() -> list[tuple[str, str]]:
    """Returns all queries, and where each is."""
    found = [(_RULES.name, query) for query in rule_queries()]
    for path in _BOARDS:
        board = json.loads(path.read_text())
        found += [(path.name, query) for query in (*board_queries(board), *variable_queries(board))]
    return found


def test_rules_and_boards_use_only_metrics_that_exist() -> None:
    used = {(place, name) for place, query in queries() for name in _NAME.findall(query)}
    assert len({name for _, name in used}) > 40
    assert {(place, name) for place, name in used if name not in SERIES} == set()


def test_rules_and_boards_use_only_labels_that_their_metrics_have() -> None:
    """Of a misspelt label, Prometheus says nothing: the query finds nothing."""
    common = {"job", "instance", "le"}
    for place, query in queries():
        metrics = [SERIES[name] for name in _NAME.findall(query)]
        known = common.union(*(metric.labels for metric in metrics))
        selected = re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', query)
        grouped = [label.strip() for by in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query) for label in by.split(",")]
        if metrics:
            assert {*selected, *grouped} <= known, (place, query)
        for name, selectors in re.findall(r"(dyorc_\w+)\{([^}]*)\}", query):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))
            assert labels <= {*SERIES[name].labels, "instance", "job"}, (place, query)


def test_boards_have_names_and_places_of_their_own() -> None:
    boards = [json.loads(path.read_text()) for path in _BOARDS]
    assert [path.stem for path in _BOARDS] == ["overview", "program", "tenants"]
    assert len({board["uid"] for board in boards}) == len(boards)
    for board in boards:
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
        assert len(set(places)) == len(places)
        assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in board["panels"])


@needs_promtool
def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    promtool("check", "config", _DEPLOY / "prometheus" / "prometheus.yml")
    promtool("check", "rules", _RULES)


@needs_promtool
@pytest.mark.parametrize("path", _BOARDS, ids=lambda path: path.stem)
def test_prometheus_understands_the_boards_queries(path: Path, tmp_path: Path) -> None:
    found = [query.replace("$__rate_interval", "1m") for query in board_queries(json.loads(path.read_text()))]
    rules = [{"record": f"board:query:{number}", "expr": query} for number, query in enumerate(found)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yml")


@needs_promtool
def test_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", Path(__file__).with_name("alerts.yml"))


def test_every_alert_is_tried() -> None:
    alerts = {
        rule["alert"] for group in yaml.safe_load(_RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule
    }
    tests = yaml.safe_load(Path(__file__).with_name("alerts.yml").read_text())["tests"]
    fired = {one["alertname"] for test in tests for one in test["alert_rule_test"] if one.get("exp_alerts")}
    assert fired == alerts
