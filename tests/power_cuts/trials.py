"""Tries mistakes: each is made, and cuts are tried until one shows it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.power_cuts.cuts import ROLES, record, try_cuts
from tests.power_cuts.file_log import Step
from tests.power_cuts.mistakes import MISTAKES, MISTAKES_OF_DISKS, MISTAKES_OF_RECOVERY

_AT_ONCE = 25
_NUM_JOBS = 7
_OF_FILES = frozenset({"files_renamed_unwritten", "names_not_synchronized"})


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A mistake, and where it shows.

    Attributes:
        roles: The processes that make it, or show it.
        steps: What processes did without a mistake, for mistakes that are not made there; empty: it is recorded.
    """

    mistake: str
    roles: Sequence[str] = ROLES
    steps: Sequence[Step] = ()

    def first_noticed(self, num_cuts: int, seed: int) -> int | None:
        """Returns after how many cuts it was noticed, at most; None: not at all."""
        made = self.mistake if self.mistake in MISTAKES else ""
        steps = self.steps or record(made, num_jobs=_NUM_JOBS, num_turns=1, roles=self.roles)
        if (is_left_out := MISTAKES_OF_DISKS.get(self.mistake)) is not None:
            steps = [step for step in steps if not is_left_out(step)]
        make = MISTAKES_OF_RECOVERY.get(self.mistake)
        take_back = make() if make is not None else lambda: None
        try:
            for start in range(0, num_cuts, _AT_ONCE):
                end = min(start + _AT_ONCE, num_cuts)
                if try_cuts(steps, range(start, end), seed, with_lies=False).wrong:
                    return end
            return None
        finally:
            take_back()


def trials() -> dict[str, Trial]:
    """Returns a trial for each mistake."""
    names = [*MISTAKES, *MISTAKES_OF_RECOVERY, *MISTAKES_OF_DISKS]
    return {name: Trial(mistake=name, roles=ROLES[2:] if name in _OF_FILES else ROLES[:2]) for name in names}
