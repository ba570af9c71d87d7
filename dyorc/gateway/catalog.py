"""The models that the gateway serves: workflows, and every single program. Follows the offers as they change."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from random import Random
from typing import Any

import msgspec

from dyorc.authoring.batching import BatchKeys
from dyorc.authoring.signature import Signature, StaticValue
from dyorc.authoring.spec import ValueSpec
from dyorc.authoring.values import MAX_IMAGE_PIXELS
from dyorc.core.arrays import Array, inline
from dyorc.engine.engine_statistics import MAX_RETIRED
from dyorc.errors import NotReadyError, UnknownModelError
from dyorc.models.offers import ModelKey, Offer, Offers, ProgramOffer
from dyorc.protocol.deployment_changes import STICKY_BY_KEY
from dyorc.protocol.header_names import Header
from dyorc.protocol.parameter_names import PARAMETERS, REPEATABLE, STRUCTURED_VALUES
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings

_random = Random()
"""Not the process's own, which users' code may seed."""


@dataclass(frozen=True, eq=False)
class Model:
    """One version of a model.

    Attributes:
        key: Its name and version.
        is_streaming: Whether it answers in parts.
        is_repeatable: Whether a request may be repeated even if it has run: no program of it has an effect that counts twice.
        max_image_pixels: Most pixels of each image in a request.
    """

    key: ModelKey
    offer: Offer
    signature: Signature
    is_streaming: bool
    is_repeatable: bool
    max_image_pixels: int

    @classmethod
    def of(cls, offer: Offer, max_image_pixels: int) -> "Model":
        is_repeatable = not any(program.has_effect for program in offer.programs)
        return cls(offer.key, offer, offer.signature.signature(), offer.is_streaming, is_repeatable, max_image_pixels)

    @cached_property
    def name(self) -> str:
        return self.key.name

    @cached_property
    def version(self) -> str:
        return self.key.version

    @property
    def tally(self) -> str:
        """The name under which its requests are counted."""
        return self.offer.tally or self.name

    @property
    def programs(self) -> Sequence[ProgramOffer]:
        return self.offer.programs

    @property
    def is_program(self) -> bool:
        return self.offer.is_program

    @property
    def platform(self) -> str:
        """The kind of model, for the protocol."""
        return "dyorc_program" if self.is_program else "dyorc_workflow"

    @cached_property
    def _batch_keys(self) -> BatchKeys | None:
        """What limits the sizes of a single program's inputs."""
        if not self.is_program:
            return None
        return BatchKeys(self.signature.owner, self.signature, self.offer.programs[0].padding)

    def metadata(self, versions: Sequence[str]) -> dict[str, Any]:
        """Returns the protocol's model metadata. Shapes are those of one item; the server does the batching.

        Args:
            versions: All versions of the model.
        """
        signature = self.signature
        return {
            "name": self.name,
            "versions": list(versions),
            "platform": self.platform,
            "inputs": [{"name": spec.name, "datatype": spec.dtype, "shape": spec.wire_shape} for spec in signature.inputs],
            "outputs": [
                {"name": spec.name, "datatype": spec.dtype, "shape": spec.wire_shape} for spec in signature.outputs.tensors
            ],
            "properties": self._properties(),
        }

    def _properties(self) -> dict[str, str]:
        properties = {REPEATABLE: "true" if self.is_repeatable else "false"}
        if self.signature.statics:
            properties[PARAMETERS] = msgspec.json.encode([static.described() for static in self.signature.statics]).decode()
        if structured := [spec.described() for spec in self.signature.inputs if isinstance(spec, ValueSpec)]:
            properties[STRUCTURED_VALUES] = msgspec.json.encode(structured).decode()
        return properties

    def check(self, arrays: Sequence[Array], statics: tuple[StaticValue, ...]) -> None:
        """Checks the inputs of a request.

        Raises:
            InvalidInputError: If one does not fit the model.
        """
        tensors = [inline(array) for array in arrays]
        self.signature.check_inputs(tensors)
        if self._batch_keys is not None:
            self._batch_keys.key(tensors, statics)
        self.signature.check_contents(arrays, self.max_image_pixels)


class TrafficSplit:
    """Distributes requests over versions by their shares: at random, or by what their clients say of themselves.

    A client's value is a number between 0 and 1, its hash, and each version has a part of that range, in the order of the offers.
    So a client gets the same version from every process, and a version that gets a larger share keeps the clients that it has.

    Args:
        default: Gets the rest.
        others: Each has a share.

    Attributes:
        num_by_clients: How many requests each version got by what their clients said, by its tally.
        num_drawn: How many it got at random.
    """

    def __init__(self, default: Model, others: Sequence[Model]) -> None:
        self._default = default
        self._others = others
        self._sticky = default.offer.sticky
        self._header = self._sticky.encode()
        self.num_by_clients = Counter[str]()
        self.num_drawn = Counter[str]()

    def next(self, tenant: str, headers: Iterable[Header]) -> Model:
        """Returns the version for the next request.

        Args:
            tenant: Who sends it; empty without keys.
            headers: Of the request.
        """
        value = self._value_of(tenant, headers) if self._sticky else b""
        if not value:
            model = self._at(_random.random())
            self.num_drawn[model.tally] += 1
            return model
        digest = blake2b(value, digest_size=8, key=self._default.name.encode()[:64]).digest()
        model = self._at(int.from_bytes(digest) / 2**64)
        self.num_by_clients[model.tally] += 1
        return model

    def _value_of(self, tenant: str, headers: Iterable[Header]) -> bytes:
        if self._sticky == STICKY_BY_KEY:
            return tenant.encode()
        return next((value.strip(b" \t") for name, value in headers if name == self._header), b"")

    def _at(self, place: float) -> Model:
        return _draw(place, [(model, model.offer.share) for model in self._others]) or self._default


def _draw(place: float, shares: Sequence[tuple[Model, float]]) -> Model | None:
    """Returns the version that has a place between 0 and 1, if the versions divide that range in this order."""
    for model, share in shares:
        place -= share
        if place < 0:
            return model
    return None


class Catalog:
    """All models. For the event loop's thread.

    Args:
        offers: What is on offer; the catalog follows its changes.
        max_image_pixels: Most pixels of each image in a request.

    Attributes:
        models: By name, in the version for requests that name none.
        versions: All of them, by name, in the order of the offers.
        tallies: All versions, by the name under which their requests are counted.
        splits: By the names of models, how requests without a version are distributed, where versions other than the first
            have a share.
        watched: The versions of models whose requests go to several, as copies or not.
    """

    def __init__(self, offers: Offers, max_image_pixels: int = MAX_IMAGE_PIXELS) -> None:
        self._offers = offers
        self._max_image_pixels = max_image_pixels
        self.models: dict[str, Model] = {}
        self.versions: dict[str, dict[str, Model]] = {}
        self.tallies: dict[str, Model] = {}
        self.splits: dict[str, TrafficSplit] = {}
        self.watched: frozenset[ModelKey] = frozenset()
        self._shadows: dict[ModelKey, list[Model]] = {}
        self._num_assigned = Counter[tuple[str, str]]()
        self._by_key: dict[tuple[str, str], Model] = {}
        offers.watch(self._read)
        self._read()

    def _read(self) -> None:
        """Reads the current offers. A model whose offer is the same stays the same object."""
        known = self._by_key
        kept = [known.get(offer.key) for offer in self._offers.all]
        models = [
            model if model is not None and model.offer == offer else Model.of(offer, self._max_image_pixels)
            for model, offer in zip(kept, self._offers.all, strict=True)
        ]
        self._by_key = {model.key: model for model in models}
        self.models.clear()
        self.versions.clear()
        self.tallies.clear()
        for model in models:
            self.models.setdefault(model.name, model)
            self.tallies.setdefault(model.tally, model)
            self.versions.setdefault(model.name, {})[model.version] = model
        for tally, choice, number in self._assignments():
            self._num_assigned[tally, choice] += number
        left = [labels for labels in self._num_assigned if labels[0] not in self.tallies]
        for labels in left[:-MAX_RETIRED]:
            del self._num_assigned[labels]
        self.splits, self._shadows = {}, {}
        for name, versions in self.versions.items():
            default = self.models[name]
            if any(model.offer.share for model in versions.values()):
                others = [model for model in versions.values() if model.offer.share and model is not default]
                self.splits[name] = TrafficSplit(default, others)
            if shadows := [model for model in versions.values() if model.offer.shadow]:
                self._shadows[default.key] = shadows
        busy = [name for name in self.versions if name in self.splits or self.models[name].key in self._shadows]
        self.watched = frozenset(model.key for name in busy for model in self.versions[name].values())

    def offers(self, key: ModelKey) -> bool:
        """Returns whether this version of a model is on offer."""
        return key in self._by_key

    def draw_shadow(self, key: ModelKey) -> Model | None:
        """Returns the version that gets a copy of the next request for a default version, if one does."""
        shadows = self._shadows.get(key)
        return None if shadows is None else _draw(_random.random(), [(model, model.offer.shadow) for model in shadows])

    def of_tenant(self, may_use: Callable[[str], bool]) -> list[Model]:
        """Returns all versions of the models that may be used, sorted by name."""
        return [model for name in sorted(filter(may_use, self.models)) for model in self.versions[name].values()]

    def _assignments(self) -> Iterator[tuple[str, str, int]]:
        for split in self.splits.values():
            yield from ((tally, "sticky", number) for tally, number in split.num_by_clients.items())
            yield from ((tally, "random", number) for tally, number in split.num_drawn.items())

    def measure(self, readings: Readings) -> None:
        """Adds how many requests versions got."""
        for (tally, choice), number in self._num_assigned.items():
            readings.add(catalogue.ASSIGNED, number, tally, choice)
        for tally, choice, number in self._assignments():
            readings.add(catalogue.ASSIGNED, number, tally, choice)

    def model(self, name: str, version: str | None = None, tenant: str = "", headers: Iterable[Header] = ()) -> Model:
        """Returns a model by name.

        Args:
            version: None: the default, or another with a share of the requests.
            tenant: Who asks, which may pick the version.
            headers: Of the request, which may do so.

        Raises:
            UnknownModelError: If the model or the version is unknown.
            NotReadyError: If the model is unknown, but a group of orchestrators that may have it has not reported yet.
        """
        model = self.models.get(name) if version is None else self._by_key.get((name, version))
        if model is not None:
            if self.splits and version is None and name in self.splits:
                return self.splits[name].next(tenant, headers)
            return model
        if name not in self.models:
            if groups := self._offers.unheard:
                raise NotReadyError(f"model {name!r} is not known yet: the orchestrators of {list(groups)} have not reported")
            raise UnknownModelError(f"unknown model {name!r}; served are {sorted(self.models)}")
        raise UnknownModelError(f"model {name!r} has no version {version!r}; it has {list(self.versions[name])}")
