"""What the server `uvicorn` serves: the models of `main`, by `dyorc.asgi`."""

from pathlib import Path
from typing import cast

import dyorc
from dyorc.authoring.loading import load
from dyorc.authoring.workflow import Workflow
from tests.conformance.models import behave, every_type, mirror, reverse_text
from tests.conformance.streaming_models import count

_DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "workflow.py"

server = dyorc.asgi(
    cast(Workflow, load(f"{_DIGITS}:classify")), mirror, every_type, behave, reverse_text, count,
    settings={"gateway.allow_client_shm": True},
)  # fmt: skip
