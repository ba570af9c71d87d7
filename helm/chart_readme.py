"""Makes the chart's README.md from readme.md, the comments of values.yaml and the schema's old names: `make schema` writes it.

Comments are written as helm-docs reads them: `# -- text` before a value, more lines of text after it. `# @section -- title`
before a top-level key begins a table.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from helm.values_schema import chart_schema

_FOLDER = Path(__file__).parent
README = _FOLDER / "dyorc" / "README.md"
VALUES = _FOLDER / "dyorc" / "values.yaml"
_KEY = re.compile(r"^( *)([A-Za-z]\w*):")
_COMMENT = re.compile(r"^ *# ?(.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One that can be set."""

    path: str
    default: Any
    text: str
    section: str


def documented_values(text: str) -> Iterator[Value]:
    """Yields the values of a values.yaml in their order.

    Raises:
        ValueError: If a value has no text: neither it nor a map that it is in.
    """
    defaults = yaml.safe_load(text)
    section = ""
    comment: list[str] = []
    keys: list[tuple[int, str]] = []
    inside: int | None = None  # the indentation of a map that is documented as a whole
    for line in text.splitlines():
        if match := _KEY.match(line):
            indentation = len(match[1])
            if inside is not None and indentation > inside:
                continue
            inside = None
            keys = [*(key for key in keys if key[0] < indentation), (indentation, match[2])]
            names = [name for _, name in keys]
            default = _value_at(defaults, names)
            if comment:
                yield Value(path=".".join(names), default=default, text=" ".join(comment), section=section)
                inside = indentation
            elif not isinstance(default, dict) or not default:
                raise ValueError(f"values.yaml: {'.'.join(names)} has no comment that begins with '# --'")
            comment = []
        elif match := _COMMENT.match(line):
            said = match[1]
            if said.startswith("@section -- "):
                section = said.removeprefix("@section -- ")
            elif said.startswith("-- "):
                comment = [said.removeprefix("-- ")]
            elif comment:
                comment.append(said)


def _value_at(values: Any, names: list[str]) -> Any:
    for name in names:
        values = values[name]
    return values


def readme() -> str:
    """Returns it as text, the same for the same values."""
    sections: dict[str, list[Value]] = {}
    for value in documented_values(VALUES.read_text()):
        sections.setdefault(value.section, []).append(value)
    tables = "\n\n".join(_table(title, values) for title, values in sections.items())
    old = "\n".join(f"| {name} | {text} |" for name, text in sorted(_old_names(chart_schema(), "", {})))
    names = f"| old name | |\n|---|---|\n{old}\n| `sharedMemory: 1Gi` of a component | Now `sharedMemory.sizeLimit`. |\n"
    names += "| `redis.image: redis:7.4` | Now `redis.image.repository` and `redis.image.tag`. |"
    text = (_FOLDER / "readme.md").read_text()
    note = "<!-- Made of helm/readme.md and values.yaml by `make schema`; do not edit. -->"
    title, rest = text.split("\n", 1)
    return f"{title}\n\n{note}\n{rest}".replace("<!-- values -->", tables).replace("<!-- old names -->", names)


def _table(title: str, values: list[Value]) -> str:
    rows = [f"| `{value.path}` | {_cell(value.default)} | {value.text.replace('|', chr(92) + '|')} |" for value in values]
    return "\n".join([f"## {title}", "", "| value | default | |", "|---|---|---|", *rows])


def _cell(default: Any) -> str:
    return f"`{json.dumps(default)}`" if default not in ("", {}, []) or default in (0, False) else ""


def _old_names(part: Mapping[str, Any], path: str, definitions: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields names that the chart's schema calls deprecated, with what it says; those of all components once."""
    definitions = part.get("$defs", definitions)
    for name, schema in part.get("properties", {}).items():
        here = f"{path}{name}"
        if schema.get("deprecated"):
            is_repeated = name in definitions["pods"]["properties"] and path not in ("", "pods.")
            if not is_repeated:
                yield f"`{name}` of a component" if path == "pods." else f"`{here}`", schema["description"]
            continue
        reference = schema.get("$ref", "").removeprefix("#/$defs/")
        yield from _old_names(definitions.get(reference, schema) if reference == "pods" else schema, f"{here}.", definitions)


if __name__ == "__main__":
    README.write_text(readme())
