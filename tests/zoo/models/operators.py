"""Lets torchvision be imported where its operators in C++ do not fit the build of torch: its plain models need none of them."""

import torch

_MISSING = ("nms", "qnms")
_LIBRARIES: list[torch.library.Library] = []


def define_missing_operators() -> None:
    """Declares the operators that `import torchvision` looks up, if they are not there. They cannot be called."""
    try:
        import torchvision  # noqa: F401
    except ModuleNotFoundError:
        return
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        library = torch.library.Library("torchvision", "DEF")
        for name in _MISSING:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _LIBRARIES.append(library)  # what it declares goes with it
