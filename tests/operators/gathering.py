"""Gathers samples of operations that have a rule or a meaning, each kind once."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from dyorc.planner.program.rules import rule_of
from dyorc.planner.program.simplify import VIEW
from dyorc.planner.verify.meanings import UnknownOperationError, meaning_of
from tests.operators.recording import UnsupportedSampleError, record
from tests.operators.samples import OperationSample, SimplifierError, operations_of


@dataclass(kw_only=True)
class Gathering:
    """What has been gathered.

    Attributes:
        samples: One of each operation with the same arguments, shapes and types.
        num_recorded: Functions that were recorded and compared with their normal form.
        wrong: Programs that compute something else in their normal form.
        skipped: Functions that were not recorded, by the reason.
    """

    samples: dict[str, OperationSample] = field(default_factory=dict[str, OperationSample])
    num_recorded: int = 0
    wrong: list[str] = field(default_factory=list[str])
    skipped: Counter[str] = field(default_factory=Counter[str])


def gather(
    functions: Iterable[tuple[str, Callable[[], Sequence[torch.Tensor]]]],
    gathering: Gathering | None = None,
    *,
    whole: frozenset[str] = frozenset(),
) -> Gathering:
    """Runs functions, and returns samples of the operations that they are made of.

    Args:
        functions: Their names, and what returns their results.
        gathering: What has been gathered before.
        whole: As in `record`.
    """
    found = gathering or Gathering()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of much in its own samples
        for name, function in functions:
            try:
                recording = record(function, name, whole=whole)
            except UnsupportedSampleError as error:
                found.skipped[str(error)] += 1
                continue
            except (RuntimeError, AssertionError) as error:  # not for this device
                found.skipped[f"{name}: {str(error).splitlines()[0]}"] += 1
                continue
            except Exception as error:  # our decomposition's
                found.wrong.append(f"{name} cannot be taken apart: {type(error).__name__}: {error}")
                continue
            found.num_recorded += 1
            try:
                for sample in operations_of(recording):
                    if has_rule(sample) or has_meaning(sample.node.op):
                        found.samples.setdefault(sample.key, sample)
            except SimplifierError as error:
                found.wrong.append(str(error))
            except Exception as error:
                found.wrong.append(f"{name}: the normal form cannot be computed: {type(error).__name__}: {error}")
    return found


def has_rule(sample: OperationSample) -> bool:
    """Whether the planners may split the operation."""
    return sample.node.op == VIEW or rule_of(sample.node, sample.program.values) is not None


def has_meaning(op: str) -> bool:
    """Whether the verifier knows the operation."""
    try:
        meaning_of(op)
    except UnknownOperationError:
        return False
    return True
