"""Asks Helm's engine about the chart. A start of the engine takes a second, so tests ask several things at once."""

import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

_ROOT = Path(__file__).parents[3]
_HERE = Path(__file__).parent
CHART = _ROOT / "helm" / "dyorc"
VALUES = {file.stem: file for file in sorted((_ROOT / "helm" / "examples").glob("*.yaml"))}
GOLDEN = _HERE / "golden"
OLD, NEW = "1.30", "1.33"
"""Versions of Kubernetes: the oldest that the chart allows, and the first with images as volumes."""

_PYTHON = _ROOT / ".venv-helm" / "bin" / "python"
_RANDOM = re.compile(r"[A-Za-z0-9+/]{80,}={0,2}")

Document: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the chart makes of values; `refused` is why it makes nothing."""

    documents: Sequence[Document]
    notes: str
    problems: Sequence[str]
    refused: str

    def one(self, kind: str, name: str) -> Document:
        """Returns an object; its name without the release's."""
        (found,) = (one for one in self.documents if (one["kind"], one["metadata"]["name"]) == (kind, f"demo-dyorc{name}"))
        return found

    def kinds(self) -> set[str]:
        """Returns which kinds of objects there are."""
        return {one["kind"] for one in self.documents}


def is_there() -> bool:
    """Whether Helm's engine is installed."""
    return _PYTHON.exists()


def ask(values: Iterable[Mapping[str, Any]], **options: Any) -> list[Answer]:
    """Renders the chart with each of several values. `engine.py` says which options there are."""
    return _answers([{"values": given, **options} for given in values])


def check(manifests: str, version: str) -> Answer:
    """Reads manifests that the chart does not make, and checks them for a version of Kubernetes."""
    (answer,) = _answers([{"manifests": manifests, "versions": [version]}])
    return answer


def _answers(questions: Sequence[Mapping[str, Any]]) -> list[Answer]:
    command = [str(_PYTHON), "-m", "tests.integration.chart.engine", str(CHART), str(_HERE / "custom_resources.yaml")]
    text = json.dumps(questions)
    done = subprocess.run(command, cwd=_ROOT, input=text, capture_output=True, text=True, timeout=270, check=False)
    assert done.returncode == 0, done.stderr
    return [
        Answer(one.get("documents", ()), one.get("notes", ""), one.get("problems", ()), one.get("refused", ""))
        for one in json.loads(done.stdout)
    ]


def examples() -> dict[str, dict[str, Any]]:
    """Returns the values of the examples, by name."""
    return {name: yaml.safe_load(file.read_text()) for name, file in VALUES.items()}


def as_golden(answer: Answer) -> str:
    """Returns what was rendered as text that only changes with the chart: no random keys, and no copies of other files."""
    documents = []
    for document in answer.documents:
        match document["kind"], document["metadata"]["name"].removeprefix("demo-dyorc"):
            case "PrometheusRule", _:
                document = document | {"spec": "deploy/prometheus/dyorc.rules.yml"}
            case "ConfigMap", "-dashboards":
                document = document | {"data": dict.fromkeys(document["data"], "deploy/grafana")}
            case "Secret", _ if "data" in document:
                document = document | {"data": {key: _RANDOM.sub("(random)", text) for key, text in document["data"].items()}}
        documents.append(document)
    return yaml.safe_dump_all(documents, sort_keys=True, width=130)


def write_golden() -> None:
    """Writes what is rendered now, as what is expected: `make chart-golden`."""
    values = examples()
    for name, answer in zip(values, ask(values.values()), strict=True):
        assert not answer.refused, f"{name}: {answer.refused}"
        (GOLDEN / f"{name}.yaml").write_text(as_golden(answer))


if __name__ == "__main__":
    write_golden()
