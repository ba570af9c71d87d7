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


def test_boards_have_names_of_their_own() -> None:
    assert [name for name, _ in boards()] == ["overview", "program", "tenants"]
    assert len({board["uid"] for _, board in boards()}) == len({board["title"] for _, board in boards()}) == len(_BOARDS)


_SCHEMA_VERSIONS = range(36, 43)
"""Of Grafana 9 to 12. A newer Grafana migrates older ones; an older one refuses none, but shows nonsense."""
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_PANELS = {"stat", "timeseries", "heatmap"}
_UNITS = {"short", "s", "bytes", "Bps", "reqps", "ops", "cps", "percentunit"}
"""Ids of Grafana's units; one that it does not know is shown as text behind the number."""
_UNIT_OF = {"_seconds": {"s"}, "_bytes": {"bytes", "Bps"}}
"""Units that fit to metrics of this name, where their values are neither divided nor counted."""


def boards() -> list[tuple[str, dict[str, Any]]]:
    return [(path.stem, json.loads(path.read_text())) for path in _BOARDS]


def test_boards_have_the_form_of_grafanas_model() -> None:
    for name, board in boards():
        assert board["schemaVersion"] in _SCHEMA_VERSIONS, name
        assert board.get("id") is None, f"{name}: an id belongs to the Grafana that it was exported from"
        assert {"uid", "title", "time", "refresh", "panels", "templating"} <= set(board)
        assert not {"__inputs", "__requires"} & set(board)
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids) > 3
        for panel in board["panels"]:
            assert panel["type"] in _PANELS, panel["title"]
            assert panel["title"]
            references = [target["refId"] for target in panel["targets"]]
            assert len(set(references)) == len(references) >= 1
            overrides = panel["fieldConfig"]["overrides"]
            assert all(set(one) == {"matcher", "properties"} for one in overrides), panel["title"]


def test_boards_ask_the_data_source_that_is_chosen() -> None:
    for name, board in boards():
        variables = {one["name"]: one for one in board["templating"]["list"]}
        assert variables["datasource"]["type"] == "datasource"
        assert variables["datasource"]["query"] == "prometheus"
        assert next(iter(variables)) == "datasource", f"{name}: the others are asked from it"
        asked = [one["datasource"] for one in variables.values() if one["type"] == "query"]
        for panel in board["panels"]:
            asked += [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(one == _DATASOURCE for one in asked), name


def test_boards_use_the_variables_that_they_have_and_have_those_that_they_use() -> None:
    for name, board in boards():
        texts = json.dumps([board["panels"], [one.get("query") for one in board["templating"]["list"]], board["title"]])
        used = {one or other for one, other in re.findall(r"\$(?:\{(\w+)[^}]*\}|(\w+))", texts)}
        used = {one for one in used if not one.startswith("__")} | {"datasource"}
        assert used == {one["name"] for one in board["templating"]["list"]}, name
        for variable in board["templating"]["list"]:
            if variable.get("multi"):
                for query in board_queries(board):
                    for operator in re.findall(rf'(=~|!~|=|!=)"\${variable["name"]}"', query):
                        assert operator in ("=~", "!~"), f"{name}: several values are a pattern: {query}"


def test_panels_lie_on_the_grid_side_by_side() -> None:
    for name, board in boards():
        taken: dict[tuple[int, int], str] = {}
        for panel in board["panels"]:
            place = panel["gridPos"]
            assert min(place["x"], place["y"]) >= 0
            assert min(place["w"], place["h"]) >= 2
            assert place["x"] + place["w"] <= 24
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert (x, y) not in taken, f"{name}: {panel['title']} covers {taken[x, y]}"
                    taken[x, y] = panel["title"]
        rows = {y for _, y in taken}
        assert rows == set(range(max(rows) + 1)), f"{name}: there is a gap"


def test_units_fit_to_what_is_asked() -> None:
    num_judged = 0
    for name, board in boards():
        for panel in board["panels"]:
            unit = panel["fieldConfig"]["defaults"]["unit"]
            assert unit in _UNITS, f"{name}: {panel['title']}"
            for target in panel["targets"]:
                query = target["expr"]
                quantile = re.match(r"histogram_quantile\(\S+, *.*?(dyorc_\w+)_bucket", query)
                plain = re.fullmatch(r"(?:(?:sum|max|min)(?: by \([^)]*\))? ?\()*(dyorc_\w+?)(?:_total)?\{[^}]*\}\)*", query)
                found = quantile or plain
                for ending, fitting in _UNIT_OF.items():
                    if found is not None and found[1].removesuffix("_total").endswith(ending):
                        num_judged += 1
                        assert unit in fitting, (name, panel["title"], query)
    assert num_judged > 8


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
