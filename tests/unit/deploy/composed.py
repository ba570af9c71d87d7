"""docker-compose.yml as Compose reads it: anchors merged, variables replaced."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docker-compose.yml"
GPU_FILE = ROOT / "docker-compose.gpu.yml"
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")


def composed(path: Path = FILE, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns what a file says."""
    given = variables or {}
    return yaml.safe_load(_VARIABLE.sub(lambda found: given.get(found["name"]) or found["default"] or "", path.read_text()))


def services(*, ours: bool) -> dict[str, dict[str, Any]]:
    """Returns the services that run DyOrc's own image, or the others."""
    return {name: one for name, one in composed()["services"].items() if ("build" in one) == ours}


def mounts(service: Mapping[str, Any]) -> dict[str, Path]:
    """Returns what a service sees of this repository: paths in the container, with the files here."""
    pairs = (volume.split(":") for volume in service.get("volumes", ()))
    return {pair[1]: (ROOT / pair[0]).resolve() for pair in pairs if pair[0].startswith(".")}
