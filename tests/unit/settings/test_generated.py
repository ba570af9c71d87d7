"""What is generated from `Settings`: a file with all defaults, and the JSON schema."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dyorc.config import Settings
from dyorc.settings.checking import problems_in
from dyorc.settings.setting_names import SETTINGS
from dyorc.settings.settings_reader import read
from dyorc.settings.settings_text import defaults, schema
from helm.chart_readme import README, VALUES, documented_values, readme
from helm.values_schema import SCHEMA, values_schema

_DOCS = Path(__file__).parents[3] / "docs" / "reference"
_COPY = _DOCS / "dyorc.schema.json"


def test_the_printed_defaults_are_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "dyorc.toml"
    file.write_text(defaults())
    assert problems_in(file) == []
    assert read(file).settings == Settings()


def test_every_setting_and_its_docstring_are_printed() -> None:
    text = defaults()
    plain = " ".join(line.removeprefix("# ") for line in text.splitlines())
    num_described = 0
    for path, one in SETTINGS.items():
        assert one.is_section or f"{path[-1]} =" in text or path == ("programs",), path
        if one.field.description and not one.is_section and path != ("programs",):
            num_described += 1
            assert " ".join(one.field.description.replace("``", "`").split()) in plain, path
    assert num_described > len(SETTINGS) / 2
    assert all(len(line) <= 130 for line in text.splitlines())


def test_the_example_in_the_documentation_is_good(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", (_DOCS / "configuration.md").read_text(), re.DOTALL)
    file = tmp_path / "dyorc.toml"
    file.write_text(text)
    settings = read(file).settings
    assert settings.workflows[0] == f"{tmp_path}/flows/digits.py:classify"
    assert settings.programs["large"].num_gpus == 0.5
    assert all("there is no file" in problem for problem in problems_in(file)), "the files are not there"


def test_the_committed_schema_is_up_to_date() -> None:
    assert _COPY.read_text() == schema(), "run `make schema`"


def test_the_schema_knows_every_setting_and_refuses_others() -> None:
    found = json.loads(schema())
    assert found["additionalProperties"] is False
    assert set(found["properties"]) == set(Settings.model_fields)
    assert found["properties"]["workflows"]["description"].startswith("What `dyorc serve` serves")
    assert set(tomllib.loads(defaults())) <= set(found["properties"])
    assert found["$defs"]["GatewayConfig"]["properties"]["port"]["maximum"] == 65535


def test_the_schema_of_the_charts_values_is_current() -> None:
    assert SCHEMA.read_text() == values_schema(), "make schema writes it"


def test_the_charts_readme_is_current() -> None:
    assert README.read_text() == readme(), "make schema writes it"


def test_the_charts_readme_has_every_value_with_its_default() -> None:
    text = VALUES.read_text()
    documented = {value.path: value.default for value in documented_values(text)}
    for path, default in _leaves(yaml.safe_load(text), ""):
        parts = path.split(".")
        holder = next(".".join(parts[:length]) for length in range(len(parts), 0, -1) if ".".join(parts[:length]) in documented)
        assert holder == path or _at(documented[holder], parts[len(holder.split(".")) :]) == default, path


def test_a_value_of_the_chart_without_a_text_is_an_error() -> None:
    text = "# @section -- Pods\n# -- How many\nreplicas: 2\nlabels:\n  # only a comment\n  team: a\n"
    with pytest.raises(ValueError, match=r"labels\.team has no comment"):
        list(documented_values(text))


def _leaves(values: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _at(values: Any, keys: list[str]) -> Any:
    for key in keys:
        values = values[key]
    return values


def test_the_chart_has_a_schema_for_each_of_its_values() -> None:
    values = yaml.safe_load((SCHEMA.parent / "values.yaml").read_text())
    described = json.loads(SCHEMA.read_text())["properties"]
    assert {name for name, schema in described.items() if not schema.get("deprecated")} == values.keys()
