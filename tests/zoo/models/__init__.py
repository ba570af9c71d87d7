"""All models of the zoo, by name; a library is imported when one of its models is built."""

from collections.abc import Iterable, Mapping
from importlib import import_module

from tests.zoo.models.entry import Entry

_FILES: Mapping[str, Iterable[str]] = {
    "transformers": (
        "transformers_text",
        "transformers_causal",
        "transformers_seq2seq",
        "transformers_vision",
        "transformers_other",
    ),
    "torchvision": ("torchvision_models",),
    "timm": ("timm_models",),
    "diffusers": ("diffusers_models",),
}
LIBRARIES = tuple(_FILES)
"""The libraries whose models there are."""


def entries(libraries: Iterable[str] = LIBRARIES) -> dict[str, Entry]:
    """Returns the models of some libraries, by name."""
    return {
        entry.name: entry
        for library in libraries
        for file in _FILES[library]
        for entry in import_module(f"{__name__}.{file}").ZOO
    }
