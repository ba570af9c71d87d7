"""Makes the chart's values.schema.json from its own values, values.schema.yaml, and DyOrc's settings: `make schema` writes it."""

import json
from pathlib import Path
from typing import Any

import yaml

from dyorc.settings.settings_text import schema

_FOLDER = Path(__file__).parent
SCHEMA = _FOLDER / "dyorc" / "values.schema.json"


def values_schema() -> str:
    """Returns it as text, the same for the same settings and values."""
    found: dict[str, Any] = yaml.safe_load((_FOLDER / "values.schema.yaml").read_text())
    hooks = found["$defs"]["hooks"]["properties"]
    _close(found, hooks)
    settings = json.loads(schema())
    del settings["$schema"]
    defined = settings.pop("$defs")
    if clashing := defined.keys() & (found["$defs"].keys() | {"Settings"}):
        raise ValueError(f"{', '.join(sorted(clashing))}: defined by the settings and by values.schema.yaml")
    found["$defs"] |= defined | {"Settings": settings}
    found |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Values of the chart dyorc"}
    return json.dumps(found, indent=2, sort_keys=True) + "\n"


def _close(part: Any, hooks: dict[str, Any]) -> None:
    """Refuses all keys that a part of the schema does not name, in objects that name some."""
    if isinstance(part, list):
        for one in part:
            _close(one, hooks)
    if not isinstance(part, dict):
        return
    if part.pop("x-hooks", False):
        part["properties"] = hooks | part["properties"]
    for one in list(part.values()):
        _close(one, hooks)
    if part.get("type") == "object" and "properties" in part:
        part.setdefault("additionalProperties", False)


if __name__ == "__main__":
    SCHEMA.write_text(values_schema())
