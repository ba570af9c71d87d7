"""Says why a module cannot be captured: which operation is to blame, at which line of the module, and what to do."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from traceback import FrameSummary, extract_tb
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]  # of all of them
from torch.overrides import TorchFunctionMode

from dyorc.errors import ProgramCaptureError, text_of

_NO_SHAPE = "has a result whose shape depends on data; use masks, or a fixed capacity, so that all shapes are known"
_NO_VALUE = "needs the data of a tensor, which has none while a graph is captured; use torch.where instead of a Python branch"
_NO_CHANGE = "changes an input of the module in place; work on a copy of it"
_FOREIGN = (str(Path(torch.__file__).parent), str(Path(__file__).parent), contextlib.__file__, "<")


_CHANGES_OTHERS = ("mutating a non-functional tensor", "Unexpected fake buffer", "entirely functional graph")
"""What torch says when a module changes a tensor that is none of its parameters and buffers."""


class Refusal(TypeError):
    """Ends a capture; its text names the operation."""


class Watch(TorchFunctionMode):
    """Looks at each call of torch while a module runs, and refuses what cannot be planned where it happens."""

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._inputs = {id(tensor) for tensor in inputs}

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch for each of its functions."""
        name = getattr(func, "__name__", str(func))
        is_in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if is_in_place and args and id(args[0]) in self._inputs:
            raise Refusal(f"{name} {_NO_CHANGE}")
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            if tensor.is_complex():
                raise Refusal(f"{name} computes complex numbers, which are not supported; hold both parts as real tensors")
            if tensor.layout is not torch.strided:
                raise Refusal(f"{name} makes a sparse tensor, which is not supported; use dense ones, or index_select")
        return result


def _tensors(result: object) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for part in result:  # pyright: ignore[reportUnknownVariableType]
            yield from _tensors(part)  # pyright: ignore[reportUnknownArgumentType]


def capture_error_of(name: str, error: BaseException, module: nn.Module) -> ProgramCaptureError:
    """Returns what a capture that failed raises: the reason, and the line of the module where it failed."""
    text = text_of(error)
    match type(error).__name__:
        case "DynamicOutputShapeException":
            text = f"{text} {_NO_SHAPE}"
        case "DataDependentOutputException" | "GuardOnDataDependentSymNode":
            text = _of_norm_without_momentum(module) or f"{text} {_NO_VALUE}"
        case "SystemExit":
            text = f"the module ended the process (SystemExit: {text or None})"
        case _ if ".numpy() is not supported" in text:
            text = f"numpy {_NO_VALUE}"
        case _ if "data pointer" in text:
            text = f"data_ptr(), or numpy, {_NO_VALUE}"
        case _ if "modified by an inplace operation" in text:
            text = f"torch cannot train the module: {text.split('. Hint')[0]}; work on a copy"
        case _ if any(said in text for said in _CHANGES_OTHERS):
            text = "a tensor is changed that is neither a parameter nor a buffer: register it as a buffer"
        case _ if "found at least two devices" in text and "meta" in text:
            text = (
                "a tensor that is neither a parameter nor a buffer lies on meta, without elements: register it as a buffer, or "
                "make the module elsewhere"
            )
        case _ if "requires gradients, and received a mutation" in text:
            text = "a parameter is changed in place by the forward pass, as by an embedding with max_norm"
        case _ if "mutat" in text:
            text = f"something {_NO_CHANGE} ({text.split('. Hint')[0]})"
        case _:
            pass
    return ProgramCaptureError(f"{name} cannot be captured as one graph{_where(error)}: {text}")


def _of_norm_without_momentum(module: nn.Module) -> str:
    """What keeps a module with a cumulative average from being captured: torch reads the count of batches as a Python number."""
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm) and part.momentum is None and part.training and part.track_running_stats:
            return (
                f"{name} ({type(part).__name__}) has momentum=None: torch divides by the number of batches that it has "
                "counted, as a Python number, which no graph holds; give it a momentum"
            )
    return ""


def _where(error: BaseException) -> str:
    frames = extract_tb(error.__traceback__)
    starts = [
        index for index, frame in enumerate(frames) if frame.filename.endswith("flat_module.py") and frame.name == "forward"
    ]
    line = module_line(frames[starts[0] + 1 :]) if starts else ""
    return line and f" {line}"


def module_line(frames: Sequence[FrameSummary]) -> str:
    """Returns the deepest line of the module's own code; empty if all frames belong to torch."""
    own = [frame for frame in frames if not frame.filename.startswith(_FOREIGN)]
    return f"at {own[-1].filename}:{own[-1].lineno} ({own[-1].line})" if own else ""
