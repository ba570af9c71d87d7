"""The changes to deployed versions that a client can ask for. The gateway decodes them, the deployer carries them out."""

from typing import TypeAlias

import msgspec


class Deploy(msgspec.Struct, frozen=True, kw_only=True):
    """A version to deploy.

    Attributes:
        target: What to load, such as ``app.py:classify``; empty: the target of the default version, or a version that is known.
        model: The name that the target must have; empty: any.
        version: Its name; empty: the next whole number.
        group: The group of orchestrators that loads it; empty: the only group, or the one that has the model.
        share: Its part of the requests that name no version. With all of them (1), it becomes the default.
        is_fresh: Whether it shares no program with other versions.
        is_incompatible_allowed: Whether it may replace a version with other inputs or outputs.
    """

    target: str = ""
    model: str = ""
    version: str = ""
    group: str = ""
    share: float = 1.0
    is_fresh: bool = False
    is_incompatible_allowed: bool = False


class Undeploy(msgspec.Struct, frozen=True):
    """Takes a version out of service; without a version, the whole model."""

    model: str
    version: str | None = None


class Rollback(msgspec.Struct, frozen=True):
    """Undoes the last change of a model."""

    model: str


DeploymentChange: TypeAlias = Deploy | Undeploy | Rollback
