"""Makes the chart's values.schema.json from its own values, values.schema.yaml, and DyOrc's settings: `make schema` writes it."""

import copy
import json
from pathlib import Path
from typing import Any

import yaml

from dyorc.settings.settings_text import schema

_FOLDER = Path(__file__).parent
SCHEMA = _FOLDER / "dyorc" / "values.schema.json"


def values_schema() -> str:
    """Returns it as text, the same for the same settings and values.

    Raises:
        ValueError: If a definition of the settings has the name of one of the chart.
    """
    values = chart_schema()
    settings = json.loads(schema())
    del settings["$schema"]
    definitions = settings.pop("$defs")
    if clashing := definitions.keys() & (values["$defs"].keys() | {"Settings"}):
        raise ValueError(f"{', '.join(sorted(clashing))}: defined by the settings and by values.schema.yaml")
    values["$defs"] |= definitions | {"Settings": settings}
    values |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Values of the chart dyorc"}
    return json.dumps(values, indent=2, sort_keys=True) + "\n"


def chart_schema() -> dict[str, Any]:
    """Returns the schema of the chart's own values, without that of the settings."""
    values: dict[str, Any] = yaml.safe_load((_FOLDER / "values.schema.yaml").read_text())
    _expand(values, copy.deepcopy(values["$defs"]))
    _require(values, yaml.safe_load((_FOLDER / "dyorc" / "values.yaml").read_text()), values["$defs"])
    return values


def _require(part: dict[str, Any], defaults: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Refuses `null`, by which Helm takes a default away, for numbers, switches, texts with a default and maps of a fixed form.

    Lists, texts that are empty and maps of a free form may be away: they are "not set" then.
    """
    whole = definitions[part["$ref"].rpartition("/")[2]] if "$ref" in part else part
    properties = whole.get("properties", {}) | part.get("properties", {})
    needed = []
    for name, default in defaults.items():
        schema = properties.get(name, {})
        if name == "settings" or (default not in ("", {}, []) and not isinstance(default, dict)):
            needed.append(name)
        elif isinstance(default, dict) and default and not _is_free(name, schema, definitions):
            needed.append(name)
            own = part.setdefault("properties", {}).setdefault(name, copy.deepcopy(schema))
            _require(own, default, definitions)
    if needed:
        part["required"] = sorted(needed)


def _is_free(name: str, schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    """Whether a map has no fixed form; of resources, each may be taken away."""
    whole = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return name == "resources" or not ({"properties", "anyOf"} & (whole.keys() | schema.keys()))


def _expand(part: Any, definitions: dict[str, Any]) -> None:
    """Adds what `x-takes` and `x-old` name, and refuses all other keys in objects that name some."""
    if isinstance(part, list):
        for item in part:
            _expand(item, definitions)
    if not isinstance(part, dict):
        return
    for name in part.pop("x-takes", ()):
        shared = copy.deepcopy(definitions[name])
        part["properties"] = shared["properties"] | part["properties"]
        part["x-old"] = shared.get("x-old", {}) | part.get("x-old", {})
    old = {name: _old(part["properties"][new.split(".")[0]], new) for name, new in part.pop("x-old", {}).items()}
    for item in list(part.values()):
        _expand(item, definitions)
    if part.get("type") == "object" and "properties" in part:
        part["properties"] |= old
        part.setdefault("additionalProperties", False)


def _old(new: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns the schema of a name that a value had before; hosts and texts were a text."""
    if new.get("$ref") in ("#/$defs/hosts", "#/$defs/list") and name != "sidecars":
        new = {"type": "string"}
    elif "." in name:
        new = {"type": "object"}
    return new | {"deprecated": True, "description": f"Now `{name}`."}


if __name__ == "__main__":
    SCHEMA.write_text(values_schema())
