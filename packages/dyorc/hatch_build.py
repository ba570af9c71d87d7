"""Writes what the metapackage asks for: dyorc-core of the same version, and the same extras."""

import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    """Takes part in hatchling's builds. A source archive has the result in its PKG-INFO, and asks no hook."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the dependencies and extras."""
        core = tomllib.loads((Path(self.root).parents[1] / "pyproject.toml").read_text())["project"]
        name, version = core["name"], metadata["version"]
        metadata["dependencies"] = [f"{name}[ray,torch,redis]=={version}"]
        metadata["optional-dependencies"] = {extra: [f"{name}[{extra}]=={version}"] for extra in core["optional-dependencies"]}
