"""Models as plain values: what is on offer arrives as it was, and a catalog follows when it changes."""

from typing import Annotated

import msgspec
import numpy as np
import pytest
from jaxtyping import Float, Int

import dyorc
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.errors import InvalidInputError, NotReadyError, SizeLimitError, UnknownModelError
from dyorc.gateway.catalog import Catalog
from dyorc.models.offers import ModelKey, Offer, Offers
from dyorc.models.registry import ModelRegistry
from tests.workflows import arithmetic, effects, streaming


@dyorc.program(pad=dyorc.pad(width=(4, 8)), max_batch_size=7, max_queued_calls=9, execution_timeout_s=5.0)
def padded(
    image: Annotated[Float[np.ndarray, "batch height width"], dyorc.Finite],
    other: Int[np.ndarray, "batch ... 3"],
    factor: float = 1.0,
    name: str = "",
    times: int = 3,
    *,
    needed: bool,
) -> tuple[Float[np.ndarray, "batch height width"], Float[np.ndarray, " batch"]]:
    """Is never run."""
    raise NotImplementedError


def travelled(*targets: Workflow | Program) -> Catalog:
    """Returns the catalog of a gateway to which the offers of these targets have been sent."""
    offers = ModelRegistry.of(targets).offers.all
    return Catalog(Offers(msgspec.msgpack.decode(msgspec.msgpack.encode(offers), type=tuple[Offer, ...])))


def test_a_signature_travels() -> None:
    model = travelled(padded).model("padded")
    assert model.signature == padded.signature
    assert (model.is_program, model.is_streaming, model.is_repeatable) == (True, False, True)
    (program,) = model.programs
    assert (program.max_batch_size, program.max_queued_calls, program.execution_timeout_s) == (7, 9, 5.0)


def test_named_outputs_are_grouped_as_a_dict() -> None:
    signature = travelled(arithmetic.sums).model("sums").signature
    assert signature.outputs.names == ("total", "num_calls")
    assert signature.outputs.build([1, 2]) == {"total": 1, "num_calls": 2}


def test_inputs_are_checked_as_the_program_would() -> None:
    model = travelled(padded).model("padded")
    image, other = np.zeros((2, 3), np.float32), np.zeros((5, 3), np.int64)
    statics = (1.0, "", 3, True)
    model.check([image, other], statics)
    with pytest.raises(SizeLimitError, match="expected at most 8"):
        model.check([np.zeros((2, 9), np.float32), other], statics)
    with pytest.raises(InvalidInputError, match="finite"):
        model.check([np.full((2, 3), np.nan, np.float32), other], statics)
    with pytest.raises(InvalidInputError, match="expected 3"):
        model.check([image, np.zeros((5, 4), np.int64)], statics)


def test_what_must_not_be_repeated_is_known() -> None:
    catalog = travelled(effects.once, effects.noted, streaming.count_up)
    assert {name: model.is_repeatable for name, model in catalog.models.items() if not model.is_program} == {
        "once": False,
        "noted": True,
        "count_up": True,
    }
    assert catalog.model("count_up").is_streaming


def test_the_catalog_follows_changes() -> None:
    first, second = (Offer.of(ModelKey("sums", version), arithmetic.sums) for version in "12")
    offers = Offers([first])
    catalog = Catalog(offers)
    models, kept = catalog.models, catalog.model("sums")
    offers.change([second, first])
    assert catalog.model("sums").version == "2", "the first is what those get who name none"
    assert catalog.model("sums", "1") is kept, "what is the same stays as it is"
    assert list(catalog.versions["sums"]) == ["2", "1"]
    offers.change([first])
    with pytest.raises(UnknownModelError, match=r"no version '2'; it has \['1'\]"):
        catalog.model("sums", "2")
    offers.change([])
    assert not models, "whoever holds the models sees the change"
    with pytest.raises(UnknownModelError, match="unknown model 'sums'"):
        catalog.model("sums", "1")


def test_a_model_is_not_unknown_while_those_who_may_have_it_have_not_been_heard_of() -> None:
    offers = Offers(unheard=["nets", "texts"])
    catalog = Catalog(offers)
    with pytest.raises(NotReadyError, match=r"'classify' is not known yet.*\['nets', 'texts'\]"):
        catalog.model("classify")
    offers.change(ModelRegistry.of([arithmetic.quadruple]).offers.all, unheard=["texts"])
    assert catalog.model(arithmetic.quadruple.name).name == arithmetic.quadruple.name
    with pytest.raises(NotReadyError, match=r"\['texts'\]"):
        catalog.model("classify")
    offers.change(offers.all)
    with pytest.raises(UnknownModelError):
        catalog.model("classify")


def test_the_docstring_of_a_workflow_travels_and_that_of_a_program_does_not() -> None:
    @dyorc.workflow
    async def told(text: str) -> str:
        """Says it.

        Twice.
        """
        return text

    catalog = travelled(told, arithmetic.quadruple)
    assert catalog.model("told").offer.description == "Says it.\n\nTwice."
    assert {model.offer.description for model in catalog.models.values() if model.is_program} == {""}
