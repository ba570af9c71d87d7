"""What is deployed, as plain values: the versions of each workflow, and the share of the requests that each gets.

It outlives the server as a note in its store, and other processes of the server follow it. Nothing here loads anything.
"""

from collections.abc import Iterable, Mapping

import msgspec

from dyorc.authoring.bundles import Bundle
from dyorc.errors import ConflictError, InvalidInputError, UnknownModelError

_MAX_PAST = 16
"""So many steps can be taken back."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a workflow, or of a program that is served by itself.

    Attributes:
        model: The name of the workflow or program.
        names: What its programs are called among those of all versions, by their own names. Programs that versions share have
            one name there.
        codes: A digest for the code of each, by their own names: that of the bundle with which it was loaded first.
        deployed_s: When (Unix time).
    """

    model: str
    version: str
    bundle: Bundle
    names: Mapping[str, str]
    codes: Mapping[str, str] = {}
    deployed_s: float = 0.0


class TrafficAssignment(msgspec.Struct, frozen=True):
    """The versions of a model that are loaded.

    Attributes:
        default: The one that answers requests which name none, but for the shares of others.
        shares: The others, each with its part of these requests.
    """

    default: str
    shares: Mapping[str, float] = {}

    @property
    def versions(self) -> tuple[str, ...]:
        """All of them, the default first."""
        return self.default, *self.shares


class ModelHistory(msgspec.Struct, frozen=True):
    """All that is known of one model.

    Attributes:
        versions: Those that are loaded, and those to which a way leads back.
        now: What is loaded; None: it was unloaded.
        past: What was before, the latest last.
        origin: The target that the server was started with; empty: it was deployed later.
    """

    versions: Mapping[str, Version]
    now: TrafficAssignment | None
    past: tuple[TrafficAssignment, ...] = ()
    origin: str = ""

    @classmethod
    def starting_with(cls, version: Version, *, origin: str = "") -> "ModelHistory":
        """Returns the line of a model with one version."""
        return cls({version.version: version}, TrafficAssignment(version.version), (), origin)

    def loaded(self) -> tuple[str, ...]:
        """Returns the versions that are loaded, the default first."""
        return () if self.now is None else self.now.versions

    # What can be done

    def deployed(self, version: Version, share: float) -> "ModelHistory":
        """Returns the line after a version got a share of the requests. With all of them, it is the default, and those that had
        a part of them leave.

        Raises:
            ConflictError: If it is the default already, and is to have less than all, or shares add up to more than all.
        """
        name = version.version
        versions = {**self.versions, name: version}
        now = self.now
        if now is None or share >= 1:
            kept = {} if now is None else {one: 0.0 for one, part in now.shares.items() if part == 0 and one != name}
            return self._changed(TrafficAssignment(name, kept), versions)
        if name == now.default:
            raise ConflictError(
                f"version {name!r} of {version.model!r} is the default version and receives the remaining traffic; "
                "deploy another, or roll back"
            )
        shares = {**now.shares, name: share}
        if sum(shares.values()) > 1:
            raise ConflictError(f"the shares of {version.model!r} would add up to {sum(shares.values()):g}: {shares}")
        return self._changed(TrafficAssignment(now.default, shares), versions)

    def undeployed(self, version: str) -> "ModelHistory":
        """Returns the line without a version.

        Raises:
            UnknownModelError: If it is not loaded.
            ConflictError: If it is the default of several.
        """
        now = self.now
        if now is None or version not in now.versions:
            raise UnknownModelError(f"version {version!r} is not loaded; loaded are {list(self.loaded())}")
        if version != now.default:
            return self._changed(
                TrafficAssignment(now.default, {one: share for one, share in now.shares.items() if one != version})
            )
        if now.shares:
            raise ConflictError(
                f"version {version!r} is the default; say first which one is to be: "
                f"deploy one of {list(now.shares)} with share 1, or roll back"
            )
        return self.unloaded()

    def unloaded(self) -> "ModelHistory":
        """Returns the line with nothing loaded. The way back leads to what is loaded now."""
        return self if self.now is None else msgspec.structs.replace(self, now=None, past=self._grown())

    def rolled_back(self) -> "ModelHistory":
        """Returns the line as it was before its last change.

        Raises:
            ConflictError: If there was none.
        """
        if not self.past:
            raise ConflictError("there is nothing before this to go back to")
        return self._trimmed(msgspec.structs.replace(self, now=self.past[-1], past=self.past[:-1]))

    def _changed(self, now: TrafficAssignment, versions: Mapping[str, Version] | None = None) -> "ModelHistory":
        versions = self.versions if versions is None else versions
        past = self.past if now == self.now else self._grown()
        return self._trimmed(msgspec.structs.replace(self, now=now, past=past, versions=versions))

    def _grown(self) -> tuple[TrafficAssignment, ...]:
        return self.past if self.now is None else (*self.past, self.now)[-_MAX_PAST:]

    @staticmethod
    def _trimmed(line: "ModelHistory") -> "ModelHistory":
        """Forgets versions to which no way leads back."""
        needed = {version for lineup in (*line.past, line.now) if lineup is not None for version in lineup.versions}
        return msgspec.structs.replace(line, versions={name: one for name, one in line.versions.items() if name in needed})


class DeploymentState(msgspec.Struct, frozen=True):
    """What is deployed.

    Attributes:
        number: Grows with each change.
        lines: By the models' names.
    """

    number: int = 0
    lines: Mapping[str, ModelHistory] = {}

    def line(self, model: str) -> ModelHistory:
        """Returns a model's line.

        Raises:
            UnknownModelError: If it has none.
        """
        if (found := self.lines.get(model)) is None:
            raise UnknownModelError(f"nothing is deployed as {model!r}; deployed are {sorted(self.lines)}")
        return found

    def with_line(self, model: str, line: ModelHistory) -> "DeploymentState":
        """Returns the record with another line."""
        return DeploymentState(self.number + 1, {**self.lines, model: line})

    def left_over(self, versions: Iterable[Version]) -> list[Version]:
        """Returns those of these versions that are not to be loaded, of models that are known."""
        return [one for one in versions if one.model in self.lines and one.version not in self.lines[one.model].loaded()]

    def names(self) -> set[str]:
        """Returns what the programs of all versions are called."""
        versions = [version for line in self.lines.values() for version in line.versions.values()]
        return {name for version in versions for name in version.names.values()}

    def to_json(self) -> bytes:
        """Returns it as text."""
        return msgspec.json.encode(self)

    @classmethod
    def of_json(cls, text: bytes | str) -> "DeploymentState":
        """Returns what `to_json` was called on. Raises msgspec.MsgspecError if it is something else."""
        return msgspec.json.decode(text, type=cls)


def check_share(share: float) -> float:
    """Returns a share, if it is one.

    Raises:
        InvalidInputError: If it is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise InvalidInputError(f"the share is {share!r}, expected a number from 0 to 1")
    return share


def next_version(line: ModelHistory | None) -> str:
    """Returns the whole number after the largest that is a version's name."""
    numbers = [int(name) for name in (line.versions if line is not None else ()) if name.isdecimal()]
    return str(max(numbers, default=0) + 1)
