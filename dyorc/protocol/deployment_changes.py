"""The changes to deployed versions that a client can ask for. The gateway decodes them, the deployer carries them out."""

from typing import Any, TypeAlias

import msgspec

from dyorc.protocol.canary_rules import read_rules

STICKY_BY_KEY = "key"
"""In place of a header: a client's API key picks the version, by its tenant."""


class Deploy(msgspec.Struct, frozen=True, kw_only=True):
    """A version to deploy.

    Attributes:
        target: What to load, such as ``app.py:classify``; empty: the target of the default version, or a version that is known.
        model: The name that the target must have; empty: any.
        version: Its name; empty: the next whole number.
        group: The group of orchestrators that loads it; empty: the only group, or the one that has the model.
        share: Its part of the requests that name no version. With all of them (1), it becomes the default. None: the first
            step of its rules; without rules, all, or none if it gets copies.
        shadow: The part of the default's requests that are copied to it; nobody sees the answers to copies.
        sticky: The header whose value picks the version of a request, or `STICKY_BY_KEY`; empty: versions are drawn at random;
            None: as before.
        rules: Rules by which it is judged (`canary_rules.read_rules`), as plain values; None: it is not.
        is_fresh: Whether it shares no program with other versions.
        is_incompatible_allowed: Whether it may replace a version with other inputs or outputs.
        after_replay: So many of the last recorded requests of its workflow, of the versions that are served, are replayed on it
            before it is loaded; 0: none.
        max_differences: Of these, so many may be different; more than 0 only with `after_replay`.
    """

    target: str = ""
    model: str = ""
    version: str = ""
    group: str = ""
    share: float | None = None
    shadow: float = 0.0
    sticky: str | None = None
    rules: dict[str, Any] | None = None
    is_fresh: bool = False
    is_incompatible_allowed: bool = False
    after_replay: int = 0
    max_differences: int = 0

    @property
    def summary(self) -> str:
        """What it does, for people who wait for it."""
        return f"the deploy of {self.target.rpartition('/')[2] or repr(self.model)}"  # its folder is not for every key

    @property
    def share_or_default(self) -> float:
        """The part of the requests that it gets."""
        if self.share is not None:
            return self.share
        if self.rules is not None:
            return min(1.0, read_rules(self.rules).steps[0] / 100)
        return 0.0 if self.shadow else 1.0


class Undeploy(msgspec.Struct, frozen=True):
    """Takes a version out of service; without a version, the whole model."""

    model: str
    version: str | None = None

    @property
    def summary(self) -> str:
        """What it does, for people who wait for it."""
        return f"the undeploy of {self.model!r}"


class Rollback(msgspec.Struct, frozen=True):
    """Undoes the last change of a model."""

    model: str

    @property
    def summary(self) -> str:
        """What it does, for people who wait for it."""
        return f"the rollback of {self.model!r}"


DeploymentChange: TypeAlias = Deploy | Undeploy | Rollback
