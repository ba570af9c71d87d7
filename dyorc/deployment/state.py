"""What is deployed, as plain values: the versions of each workflow, and the share of the requests that each gets.

It outlives the server in its store, and the other processes of the server follow it. Nothing here loads anything.
"""

from collections.abc import Iterable, Mapping

import msgspec

from dyorc.authoring.bundles import Bundle, shortened
from dyorc.errors import ConflictError, InvalidInputError, UnknownModelError
from dyorc.models.offers import VersionTraffic
from dyorc.protocol.canary_rules import CanaryRules

_MAX_PAST = 16
"""How many changes can be undone."""
_MAX_DIGITS = 15
"""Longer names of digits are names like others: they would not fit into the store's integers."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a workflow, or of a program that is served by itself.

    Attributes:
        model: The name of the workflow or program.
        names: Its programs' unique names among all versions, by their own names. A program that versions share has one name.
        codes: A code digest for each program, by their own names: of the bundle with which it was loaded first.
        groups: The unique names of the groups in whose processes its programs run, by the groups' names in its code.
        deployed_s: When it was deployed (Unix time).
    """

    model: str
    version: str
    bundle: Bundle
    names: Mapping[str, str]
    codes: Mapping[str, str] = {}
    groups: Mapping[str, str] = {}
    deployed_s: float = 0.0

    @property
    def code(self) -> str:
        """A short digest of the code that its requests run, as their histories have it: names of versions come again when a
        server starts anew."""
        return shortened(self.codes.get(self.model) or self.bundle.digest)


class CanaryState(msgspec.Struct, frozen=True, kw_only=True):
    """A version that is judged by rules, and gets more and more of the requests.

    Attributes:
        steps: Its shares, one after the other; after the last it gets all requests.
        step: The index of its present share.
    """

    version: str
    rules: CanaryRules
    steps: tuple[float, ...]
    step: int = 0


class CanaryVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of the last version that was judged.

    Attributes:
        share: What it had before.
        at_s: When it was decided (Unix time).
    """

    version: str
    is_promoted: bool
    share: float
    reason: str
    at_s: float


class TrafficAssignment(msgspec.Struct, frozen=True):
    """The versions of a model that are loaded.

    Attributes:
        default: Answers the requests that name no version, except for the shares of others.
        shares: The other versions, each with its share of these requests.
        shadows: Versions that also get copies of requests, whose answers nobody sees, each with its share of the default's.
        sticky: The header whose value picks the version of a request, or `STICKY_BY_KEY`; empty: versions are drawn at random.
        canary: The version that is judged; None: none is.
    """

    default: str
    shares: Mapping[str, float] = {}
    shadows: Mapping[str, float] = {}
    sticky: str = ""
    canary: CanaryState | None = None

    @property
    def versions(self) -> tuple[str, ...]:
        """All versions, the default first."""
        return self.default, *self.shares

    def traffic_of(self, version: str) -> VersionTraffic:
        """Returns which requests one of them gets."""
        if version == self.default:
            return VersionTraffic(sticky=self.sticky)
        return VersionTraffic(self.shares[version], self.shadows.get(version, 0.0))


class ModelHistory(msgspec.Struct, frozen=True):
    """The versions of one model, now and in the past.

    Attributes:
        versions: The loaded versions, and the versions that a rollback can reach.
        now: What is loaded; None: nothing.
        past: The earlier assignments, the latest last.
        origin: The target that the server was started with; empty: it was deployed later.
        verdict: What came out of the last version that was judged; None while another is.
        last_number: The largest number that has been a version's name, whether it can still be reached or not.
    """

    versions: Mapping[str, Version]
    now: TrafficAssignment | None
    past: tuple[TrafficAssignment, ...] = ()
    origin: str = ""
    verdict: CanaryVerdict | None = None
    last_number: int = 0

    def __post_init__(self) -> None:
        if misnamed := [name for name, version in self.versions.items() if version.version != name]:
            raise ValueError(f"version {self.versions[misnamed[0]].version!r} is listed as {misnamed[0]!r}")
        for assignment in (*self.past, self.now):
            if assignment is not None and (lost := [name for name in assignment.versions if name not in self.versions]):
                raise ValueError(f"version {lost[0]!r} is assigned requests, but only {list(self.versions)} are there")

    @classmethod
    def starting_with(cls, version: Version, *, origin: str = "") -> "ModelHistory":
        """Returns the history of a model with one version."""
        return cls({version.version: version}, TrafficAssignment(version.version), (), origin)

    @property
    def is_as_started(self) -> bool:
        """Whether it is a target of the server as it lay on the disk, and nothing of it was ever deployed: each change leaves a
        past or a number."""
        return bool(self.origin) and not self.past and not self.last_number

    def loaded_names(self) -> tuple[str, ...]:
        """Returns the versions that are loaded, the default first."""
        return () if self.now is None else self.now.versions

    # Changes

    def with_version(
        self,
        version: Version,
        share: float,
        *,
        shadow: float = 0.0,
        sticky: str | None = None,
        rules: CanaryRules | None = None,
    ) -> "ModelHistory":
        """Returns the history after a version got a share of the requests. With all of them, it becomes the default, and the
        versions that had shares leave.

        Args:
            shadow: The share of the default's requests that are copied to it.
            sticky: See `TrafficAssignment`; None: as before.
            rules: Judge it; None: nothing is judged from now on.

        Raises:
            ConflictError: If it is the default and the share is below 1, shares add up to more than 1, or it is to be judged
                while another version has a share.
        """
        name = version.version
        versions = {**self.versions, name: version}
        now = self.now
        if now is None or share >= 1:
            kept = {} if now is None else {other: 0.0 for other, part in now.shares.items() if part == 0 and other != name}
            return self._changed(TrafficAssignment(name, kept), versions)
        if name == now.default:
            raise ConflictError(
                f"version {name!r} of {version.model!r} is the default version and receives the remaining traffic; "
                "deploy another, or roll back"
            )
        shares, shadows = {**now.shares, name: share}, _without(now.shadows, name) | ({name: shadow} if shadow else {})
        for kind, parts in (("shares", shares), ("shadow shares", shadows)):
            if sum(parts.values()) > 1:
                raise ConflictError(f"the {kind} of {version.model!r} would add up to {sum(parts.values()):g}: {parts}")
        by = now.sticky if sticky is None else sticky
        canary = None if rules is None else self._canary(version, share, shares, rules)
        return self._changed(TrafficAssignment(now.default, shares, shadows, by, canary), versions)

    @staticmethod
    def _canary(version: Version, share: float, shares: Mapping[str, float], rules: CanaryRules) -> CanaryState:
        if others := [name for name, part in shares.items() if part and name != version.version]:
            raise ConflictError(
                f"version {version.version!r} of {version.model!r} cannot be judged while version {others[0]!r} has a share; "
                "undeploy that first"
            )
        later = [step / 100 for step in rules.steps if step < 100 and step / 100 > share]
        return CanaryState(version=version.version, rules=rules, steps=(share, *later))

    def settle_canary(self, *, goes_on: bool, reason: str, now_s: float) -> "ModelHistory":
        """Returns the history after the version that is judged has passed a step, or failed. However many steps it has passed, a
        rollback leads to what was before the first."""
        now = self.now
        assert now is not None
        canary = now.canary
        assert canary is not None
        if goes_on and canary.step + 1 < len(canary.steps):
            canary = msgspec.structs.replace(canary, step=canary.step + 1)
            shares = {**now.shares, canary.version: canary.steps[canary.step]}
            return msgspec.structs.replace(self, now=msgspec.structs.replace(now, shares=shares, canary=canary))
        verdict = CanaryVerdict(
            version=canary.version, is_promoted=goes_on, share=now.shares[canary.version], reason=reason, at_s=now_s
        )
        if goes_on:
            kept = {other: 0.0 for other, part in now.shares.items() if part == 0 and other != canary.version}
            settled = msgspec.structs.replace(self, now=TrafficAssignment(canary.version, kept), verdict=verdict)
            return self._trimmed(settled)
        return msgspec.structs.replace(self.roll_back(), verdict=verdict)

    def without_version(self, version: str) -> "ModelHistory":
        """Returns the history after a version was unloaded.

        Raises:
            UnknownModelError: If it is not loaded.
            ConflictError: If it is the default of several.
        """
        now = self.now
        if now is None or version not in now.versions:
            raise UnknownModelError(f"version {version!r} is not loaded; loaded are {list(self.loaded_names())}")
        if version != now.default:
            shares, shadows = _without(now.shares, version), _without(now.shadows, version)
            return self._changed(TrafficAssignment(now.default, shares, shadows, now.sticky if shares else ""))
        if now.shares:
            raise ConflictError(
                f"version {version!r} is the default; choose another default first: "
                f"deploy one of {list(now.shares)} with share 1, or roll back"
            )
        return self.without_versions()

    def without_versions(self) -> "ModelHistory":
        """Returns the history with nothing loaded. A rollback leads to what is loaded now."""
        return self if self.now is None else msgspec.structs.replace(self, now=None, past=self._grown())

    def roll_back(self) -> "ModelHistory":
        """Returns the history as it was before its last change. A version that was judged then is not judged now: who rolls back
        wants less of a new version, and a judging could promote it again.

        Raises:
            ConflictError: If there was none.
        """
        if not self.past:
            raise ConflictError("there is no earlier deployment to roll back to")
        now = msgspec.structs.replace(self.past[-1], canary=None)
        return self._trimmed(msgspec.structs.replace(self, now=now, past=self.past[:-1]))

    def _changed(self, now: TrafficAssignment, versions: Mapping[str, Version] | None = None) -> "ModelHistory":
        versions = self.versions if versions is None else versions
        past = self.past if now == self.now or _is_judged_anew(self.now, now) else self._grown()
        verdict = self.verdict if now.canary is None else None
        return self._trimmed(msgspec.structs.replace(self, now=now, past=past, versions=versions, verdict=verdict))

    def _grown(self) -> tuple[TrafficAssignment, ...]:
        return self.past if self.now is None else (*self.past, self.now)[-_MAX_PAST:]

    @staticmethod
    def _trimmed(line: "ModelHistory") -> "ModelHistory":
        """Forgets versions that no rollback can reach, but not their numbers."""
        needed = {version for lineup in (*line.past, line.now) if lineup is not None for version in lineup.versions}
        versions = {name: version for name, version in line.versions.items() if name in needed}
        return msgspec.structs.replace(line, versions=versions, last_number=_largest_number(line))


class DeploymentState(msgspec.Struct, frozen=True):
    """What is deployed.

    Attributes:
        number: Grows with each change.
        lines: The models' histories, by name.
    """

    number: int = 0
    lines: Mapping[str, ModelHistory] = {}

    def history_of(self, model: str) -> ModelHistory:
        """Returns a model's history.

        Raises:
            UnknownModelError: If it has none.
        """
        if (history := self.lines.get(model)) is None:
            raise UnknownModelError(f"nothing is deployed as {model!r}; deployed are {sorted(self.lines)}")
        return history

    def with_history(self, model: str, line: ModelHistory) -> "DeploymentState":
        """Returns the state after a change of a model's history."""
        return DeploymentState(self.number + 1, {**self.lines, model: line})

    def code_as_started(self) -> dict[str, Bundle]:
        """Returns the code of the targets that were never deployed, by target."""
        lines = [line for line in self.lines.values() if line.is_as_started]
        return {line.origin: line.versions[name].bundle for line in lines for name in line.loaded_names()}

    def retired_of(self, versions: Iterable[Version]) -> list[Version]:
        """Returns the retired ones of these versions: their model is known, but they are not deployed."""
        loaded = {model: history.loaded_names() for model, history in self.lines.items()}
        return [version for version in versions if version.model in loaded and version.version not in loaded[version.model]]

    def names(self) -> set[str]:
        """Returns the unique names of all versions' programs."""
        versions = [version for line in self.lines.values() for version in line.versions.values()]
        return {name for version in versions for name in version.names.values()}

    def groups(self) -> set[str]:
        """Returns the unique names of the groups of all versions' programs."""
        versions = [version for line in self.lines.values() for version in line.versions.values()]
        return {group for version in versions for group in version.groups.values()}

    def to_json(self) -> bytes:
        """Returns it as text."""
        return msgspec.json.encode(self)

    @classmethod
    def of_json(cls, text: bytes | str) -> "DeploymentState":
        """Returns the state that `to_json` has encoded. Raises one of `DECODE_ERRORS` for any other text."""
        return msgspec.json.decode(text, type=cls)


def _without(parts: Mapping[str, float], version: str) -> dict[str, float]:
    return {other: part for other, part in parts.items() if other != version}


def check_share(share: float, name: str = "share") -> float:
    """Returns the share.

    Args:
        name: Of the share, for the error.

    Raises:
        InvalidInputError: If it is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise InvalidInputError(f"the {name} is {share!r}, expected a number from 0 to 1")
    return share


def _is_judged_anew(before: TrafficAssignment | None, now: TrafficAssignment) -> bool:
    """Returns whether the judging of a version begins again, with other rules or steps. Like a step, that is no history: a
    rollback leads to what was before the first judging."""
    if before is None or before.canary is None or now.canary is None:
        return False
    return before.canary.version == now.canary.version


def next_version(line: ModelHistory | None) -> str:
    """Returns a name for the next version: the number after the largest one that has been a version's name. No number comes
    twice, since counts, records and logs know versions by their names."""
    return str((0 if line is None else _largest_number(line)) + 1)


def _largest_number(line: ModelHistory) -> int:
    numbers = (int(name) for name in line.versions if name.isdecimal() and len(name) <= _MAX_DIGITS)
    return max((line.last_number, *numbers))
