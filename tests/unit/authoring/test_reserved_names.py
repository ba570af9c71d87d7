"""A workflow's names are not those of requests and answers."""

from typing import Any, TypedDict

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.workflow import of_program
from dyorc.core.reserved_names import find_conflict
from dyorc.errors import DefinitionError
from dyorc.protocol import parameter_names

V = Float[np.ndarray, "4"]
OF_REQUESTS = ["timeout", "priority", "explain", "binary_data_output", "headers", "sequence_id", "triton_anything"]
OF_GENERATE = ["id", "model_name", "model_version", "parameters"]


def _workflow(name: str, kind: Any) -> dyorc.Workflow:
    names: dict[str, Any] = {}
    exec(f"async def flow({name}, x): return x", names)
    flow = names["flow"]
    flow.__annotations__ = {name: kind, "x": V, "return": V}
    return dyorc.workflow(flow)


@pytest.mark.parametrize("kind", [float, V])
@pytest.mark.parametrize("name", OF_REQUESTS + OF_GENERATE)
def test_names_of_the_protocol_are_refused_where_they_are_declared(name: str, kind: Any) -> None:
    with pytest.raises(DefinitionError, match=f"workflow 'flow': no parameter can be called '{name}': a .* has that name"):
        _workflow(name, kind)


@pytest.mark.parametrize("name", ["timeouts", "ids", "sequence", "trito_n"])
def test_other_names_are_free(name: str) -> None:
    assert _workflow(name, float).signature.names() == [name, "x"]


def test_outputs_are_named_in_answers_too() -> None:
    class Outputs(TypedDict):
        model_name: V

    async def flow(x: V) -> Outputs:
        return {"model_name": x}

    with pytest.raises(DefinitionError, match="no output can be called 'model_name'"):
        dyorc.workflow(flow)


def test_a_program_may_use_any_name_until_it_is_served_itself() -> None:
    @dyorc.program
    def scale(x: Float[np.ndarray, "batch 4"], timeout: float) -> Float[np.ndarray, "batch 4"]:
        return x * timeout

    with pytest.raises(DefinitionError, match="program 'scale': no parameter can be called 'timeout'"):
        of_program(scale)


def test_every_parameter_that_the_server_reads_is_in_the_list() -> None:
    names = [
        parameter_names.EXPLAIN,
        parameter_names.TIMEOUT,
        parameter_names.PRIORITY,
        parameter_names.BINARY_DATA_OUTPUT,
        parameter_names.EMPTY_FINAL,
    ]
    assert all(find_conflict(name) for name in [*names, *parameter_names.SEQUENCES])
