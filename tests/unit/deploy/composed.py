"""docker-compose.yml as Compose reads it: anchors and fragments merged, variables replaced."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docker-compose.yml"
CORE_FILE = ROOT / "docker-compose.core.yml"
GPU_FILE = ROOT / "docker-compose.gpu.yml"
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")


def composed(path: Path = FILE) -> dict[str, Any]:
    """Returns what a file says: each variable has its default, and each service what it extends."""
    document = _read(path)
    return document | {"services": {name: _service(path, name) for name in document["services"]}}


def services(*, ours: bool) -> dict[str, dict[str, Any]]:
    """Returns the services that run DyOrc's own image, or the others."""
    return {name: service for name, service in composed()["services"].items() if ("build" in service) == ours}


def mounts(service: Mapping[str, Any]) -> dict[str, Path]:
    """Returns what a service sees of this repository: paths in the container, with the files here."""
    pairs = (volume.split(":") for volume in service.get("volumes", ()))
    return {pair[1]: Path(pair[0]) for pair in pairs if pair[0].startswith("/")}


def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(_VARIABLE.sub(lambda variable: variable["default"] or "", path.read_text()))


def _service(path: Path, name: str) -> dict[str, Any]:
    own = _with_whole_paths(_read(path)["services"][name], path.parent)
    if (source := own.pop("extends", None)) is None:
        return own
    inherited = _service((path.parent / source.get("file", path.name)).resolve(), source["service"])
    return {key: _merged(inherited.get(key), own.get(key)) for key in inherited | own}


def _with_whole_paths(service: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Returns a service of a file in `folder`: its mounts start there, and its environment has the lines of its files."""
    volumes = [str((folder / volume).resolve()) if volume[0] == "." else volume for volume in service.get("volumes", ())]
    lines = [line for file in service.get("env_file", ()) for line in (folder / file).read_text().splitlines()]
    environment = dict(line.split("=", 1) for line in lines if not line.startswith("#")) | service.get("environment", {})
    return {key: value for key, value in {**service, "volumes": volumes, "environment": environment}.items() if value != []}


def _merged(inherited: Any, own: Any) -> Any:
    """Returns what Compose makes of a key: mappings and lists that both have grow, anything else is replaced."""
    if inherited is None or own is None:
        return inherited if own is None else own
    if isinstance(own, dict):
        return inherited | own
    return inherited + own if isinstance(own, list) else own
