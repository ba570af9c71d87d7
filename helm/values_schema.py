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
    return values


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
