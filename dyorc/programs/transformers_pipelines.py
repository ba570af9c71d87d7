"""A pipeline of transformers: texts or images in, and what the pipeline says of each out."""

import os
from typing import Any

import dyorc
from dyorc.errors import DefinitionError
from dyorc.programs.declaring import declare, import_library

_TEXT_TASKS = (
    "text-classification", "token-classification", "fill-mask", "text-generation", "feature-extraction",
)  # fmt: skip
_IMAGE_TASKS = ("image-classification", "object-detection", "image-feature-extraction")


def hf_pipeline(
    task: str,
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    device: str = "cpu",
    parameters: dict[str, Any] | None = None,
    **options: Any,
) -> dyorc.Program:
    """Returns a program from a ``text`` or an ``image`` to what the pipeline returns for it, as a structured value.

    Args:
        task: Its name in transformers, such as ``text-classification``.
        path: The folder of its model. Nothing is downloaded.
        name: By default, the task's.
        device: Where it computes, such as ``cuda``.
        parameters: Passed to the pipeline with each batch, such as ``{"top_k": 3}``.
        options: Of `dyorc.program`.

    Raises:
        DefinitionError: If the task is none of the known ones, or there is no such folder.
        MissingLibraryError: If torch, transformers or, for images, Pillow is not installed.
    """
    name = name or task
    owner = f"program {name!r}"
    if task not in (*_TEXT_TASKS, *_IMAGE_TASKS):
        raise DefinitionError(f"{owner}: task is {task!r}, expected one of {', '.join((*_TEXT_TASKS, *_IMAGE_TASKS))}")
    if not os.path.isdir(path):
        raise DefinitionError(f"{owner}: there is no folder {os.fspath(path)}; expected the folder of a model")
    command = "pip install 'dyorc-core[programs]'"
    import_library("torch", owner, command)
    transformers = import_library("transformers", owner, command)
    parameter, item = ("text", str) if task in _TEXT_TASKS else ("image", None)
    if item is None:
        item = import_library("PIL.Image", owner, command).Image

    def load() -> Any:
        pipeline = transformers.pipeline(task, model=os.fspath(path), device=device)

        def compute(**values: Any) -> list[Any]:
            (items,) = values.values()
            return _plain(pipeline(items, batch_size=len(items), **(parameters or {})))

        return compute

    return declare(name, {parameter: list[item]}, list[Any], load, **options)  # type: ignore[valid-type]


def _plain(value: Any) -> Any:
    """Returns a value without NumPy's and torch's types, which JSON does not know."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value
