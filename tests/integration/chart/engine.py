"""Helm's own engine and Kubernetes' own schemas, in an environment of their own (`make .venv-helm/.made`).

    .venv-helm/bin/python engine.py CHART CUSTOM_RESOURCES < questions > answers

A question is a JSON object: "values" to render the chart with, and "versions" of Kubernetes to check the result for. With
"secrets", the chart is installed, as a dry run, where these exist. The answer to each has "documents" (what was rendered),
"notes", and "problems" (what lint and schemas say against it); or "refused", the error.
"""

import json
import re
import sys
from typing import Any

import helm_python as helm
import jsonschema
import kubernetes_validate
import yaml
from api_server import api_server
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

_NO_CLUSTER = "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\n"
_DEFINITIONS = "kubernetes-json-schema/v{}.0-local-strict/_definitions.json"


def _own_schemas(path: str) -> dict[str, Any]:
    """Reads schemas of custom resources, by kind."""
    with open(path) as file:
        return yaml.safe_load(file)


class _Schemas:
    """Of one version of Kubernetes, and of custom resources."""

    def __init__(self, custom: dict[str, Any], version: str) -> None:
        self._custom = custom
        self._version = version
        definitions = schema_contents(_DEFINITIONS.format(version), version)
        own = {"$id": "custom", "$defs": custom["$defs"]}
        self._registry: Registry = Registry().with_resources(
            (uri, Resource.from_contents(text | {"$schema": "https://json-schema.org/draft/2020-12/schema"}))
            for uri, text in (("kubernetes", definitions), ("custom", own))
        )

    def problem(self, document: dict[str, Any]) -> str | None:
        """Returns what is wrong with an object, if something is."""
        kind = document["kind"]
        try:
            if kind in self._custom:
                schema = self._custom[kind]
                jsonschema.Draft202012Validator(schema, registry=self._registry).validate(document)
            else:
                kubernetes_validate.validate(document, self._version, strict=True)
        except jsonschema.ValidationError as error:
            return f"{kind} {document['metadata']['name']}, Kubernetes {self._version}: {error.json_path}: {error.message[:300]}"
        return None


def _lint(path: str, values: dict[str, Any]) -> list[str]:
    report = helm.lint(path, values)
    return [str(message["error"]) for message in report["messages"] if message["severity"] > 1]


def _rendered(path: str, question: dict[str, Any]) -> tuple[str, str]:
    """Returns all that the chart makes of values, and its notes."""
    values = question["values"]
    if "secrets" in question:
        with (
            api_server(question["secrets"]) as address,
            helm.Config(
                kubeconfig_content=_NO_CLUSTER, kube_apiserver=address, storage_driver="memory", namespace="prod"
            ) as cluster,
        ):
            release = cluster.install(path, "demo", values, namespace="prod", dry_run="server")
        return release["manifest"], release["notes"]
    with helm.Chart.load(path) as chart:
        rendered = chart.render(values, name="demo", namespace="prod")
    texts = [text for name, text in sorted(rendered.items()) if name.endswith(".yaml")]
    return "\n---\n".join(texts), "".join(text for name, text in rendered.items() if name.endswith("NOTES.txt"))


def _answer(path: str, custom: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
    try:
        text, notes = _rendered(path, question)
    except helm.HelmError as error:
        return {"refused": re.sub(r"\s+", " ", str(error))}
    documents = [one for one in yaml.safe_load_all(text) if one]
    problems = _lint(path, question["values"])
    for version in question.get("versions", ()):
        schemas = _Schemas(custom, version)
        problems += filter(None, map(schemas.problem, documents))
    return {"documents": documents, "notes": notes, "problems": problems}


def main() -> None:
    """Answers all questions on standard input."""
    custom = _own_schemas(sys.argv[2])
    json.dump([_answer(sys.argv[1], custom, question) for question in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
