"""Helm's own engine and Kubernetes' own schemas, in an environment of their own (`make .venv-helm/.made`).

    .venv-helm/bin/python -m tests.integration.chart.engine CHART CUSTOM_RESOURCES < questions > answers

A question is a JSON object: "values" to render the chart with, or "manifests", a text that is taken as it is; and "versions" of
Kubernetes to check the result for. With "secrets", the chart is installed, as a dry run, where these exist; with "lint": false,
Helm's lint is left out. The answer to each has "documents" (what was rendered), "notes", and "problems" (what lint and schemas
say against it); or "refused", the error.
"""

import functools
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import helm_python as helm
import jsonschema
import kubernetes_validate
import yaml
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from tests.integration.chart.api_server import api_server

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
        self._checked: dict[str, str | None] = {}
        self._registry: Registry = Registry().with_resources(
            (uri, Resource.from_contents(text | {"$schema": "https://json-schema.org/draft/2020-12/schema"}))
            for uri, text in (("kubernetes", definitions), ("custom", own))
        )

    def problem(self, document: dict[str, Any]) -> str | None:
        """Returns what is wrong with an object, if something is. Equal objects are checked once."""
        text = json.dumps(document, sort_keys=True)
        if text not in self._checked:
            self._checked[text] = self._problem(document)
        return self._checked[text]

    def _problem(self, document: dict[str, Any]) -> str | None:
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


class _Loader(yaml.CSafeLoader):
    """Refuses a key that a map has twice, as Kubernetes does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := {str(key) for key in keys if keys.count(key) > 1}:
            raise yaml.constructor.ConstructorError(None, None, f"{', '.join(sorted(twice))} twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _lint(path: str, values: dict[str, Any]) -> list[str]:
    report = helm.lint(path, values)
    return [str(message["error"]) for message in report["messages"] if message["severity"] > 1]


def _rendered(path: str, question: dict[str, Any]) -> tuple[str, str]:
    """Returns all that the chart makes of values, and its notes."""
    if "manifests" in question:
        return question["manifests"], ""
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


def _answer(path: str, schemas: Callable[[str], _Schemas], question: dict[str, Any]) -> dict[str, Any]:
    try:
        text, notes = _rendered(path, question)
    except helm.HelmError as error:
        return {"refused": re.sub(r"\s+", " ", str(error))}
    try:
        documents = [document for document in yaml.load_all(text, Loader=_Loader) if document]
    except yaml.YAMLError as error:
        return {"problems": [f"not YAML: {error}"]}
    problems = _lint(path, question["values"]) if "values" in question and question.get("lint", True) else []
    for version in question.get("versions", ()):
        problems += filter(None, map(schemas(version).problem, documents))
    return {"documents": documents, "notes": notes, "problems": problems}


def main() -> None:
    """Answers all questions on standard input."""
    custom = _own_schemas(sys.argv[2])
    schemas = functools.cache(lambda version: _Schemas(custom, version))
    json.dump([_answer(sys.argv[1], schemas, question) for question in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
