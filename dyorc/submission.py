"""What is asked of whatever runs workflows. The gateway makes it, the orchestrator takes it."""

from collections.abc import Sequence

import msgspec

from dyorc.arrays import Array
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.engine.story import Step
from dyorc.terms import Terms
from dyorc.transport.body import Body


class Submission(msgspec.Struct, frozen=True):
    """A workflow to run on inputs that have been checked.

    Attributes:
        story: Filled with the steps of the request (`dyorc.engine.story`), if its terms ask for them.
        body: Memory in which inputs lie already, if any do. Whoever submits it drops it.
    """

    workflow: Workflow
    inputs: Sequence[Array]
    statics: tuple[StaticValue, ...] = ()
    terms: Terms = Terms()
    story: list[Step] | None = None
    body: Body | None = None
