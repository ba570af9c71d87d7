"""The NumPy side of `dyorc.tensor`: element types, views, and arrays that arrive from user code.

BF16 is `ml_dtypes.bfloat16`; BYTES is an object array of `bytes`.
"""

import sys
from collections.abc import Iterable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dyorc.errors import InvalidInputError
from dyorc.tensor import DType, Index, TensorRef

Array: TypeAlias = NDArray[Any]

_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.UINT8: np.dtype("<u1"),
    DType.UINT16: np.dtype("<u2"),
    DType.UINT32: np.dtype("<u4"),
    DType.UINT64: np.dtype("<u8"),
    DType.INT8: np.dtype("<i1"),
    DType.INT16: np.dtype("<i2"),
    DType.INT32: np.dtype("<i4"),
    DType.INT64: np.dtype("<i8"),
    DType.FP16: np.dtype("<f2"),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.FP32: np.dtype("<f4"),
    DType.FP64: np.dtype("<f8"),
    DType.BYTES: np.dtype(object),
}
_DTYPES = {dtype: name for name, dtype in _NUMPY.items()}
_BIG_ENDIAN = ">" if sys.byteorder == "little" else "="
"""NumPy's character for this machine's byte order."""


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Returns NumPy's type for `dtype`, little-endian."""
    return _NUMPY[dtype]


def dtype_of(array: Array) -> DType:
    """Returns the protocol's type of an array.

    Raises:
        InvalidInputError: If there is none, as for complex numbers.
    """
    try:
        return _DTYPES[array.dtype]
    except KeyError:
        raise InvalidInputError(f"arrays of {array.dtype} cannot be sent; expected one of {[d.value for d in DType]}") from None


def as_array(value: Any, dtype: DType, what: str) -> Array:
    """Converts a value from user code (array, tensor, list, number, text) to an array.

    Python numbers, lists and texts take the declared `dtype`; arrays and tensors keep their own, in little-endian byte order.

    Raises:
        InvalidInputError: If it cannot be converted; names `what`.
    """
    try:
        return _as_array(value, dtype, what)
    except InvalidInputError:
        raise
    except Exception as error:
        raise InvalidInputError(f"{what}: {type(value).__name__} cannot become a tensor of {dtype}: {error}") from error


def _as_array(value: Any, dtype: DType, what: str) -> Array:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return torch_to_numpy(value)
    if isinstance(value, np.ndarray | np.generic):
        array: Array = np.asarray(value)
        if array.dtype.kind in "SUO":
            return _as_bytes(array, what)
        if array.dtype.byteorder == _BIG_ENDIAN:
            array = array.astype(array.dtype.newbyteorder("<"))
        dtype_of(array)
        return array
    if dtype is DType.BYTES:
        return _as_bytes(np.asarray(value, dtype=object), what)
    target = _NUMPY[dtype]
    found = np.asarray(value)
    if found.size and found.dtype.kind not in {"b": "b", "i": "iu", "u": "iu"}.get(target.kind, "iuf"):
        raise InvalidInputError(f"{what}: {value!r} holds {found.dtype} numbers or texts, expected {dtype}")
    return np.asarray(value, dtype=target)


def _as_bytes(array: Array, what: str) -> Array:
    """Returns texts (as UTF-8) and byte strings in an object array."""
    result = np.empty(array.shape, dtype=object)
    for at, item in np.ndenumerate(array):
        if isinstance(item, np.ndarray) and item.ndim == 0:
            item = item.item()
        if isinstance(item, str):
            item = item.encode()
        if not isinstance(item, bytes):
            raise InvalidInputError(f"{what}: an element is {type(item).__name__} {item!r}, expected bytes or str")
        result[at] = bytes(item)
    return result


def torch_to_numpy(tensor: Any) -> Array:
    """Returns a torch tensor's values on the host; shares memory where possible."""
    torch = sys.modules["torch"]
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def numpy_to_torch(array: Array) -> Any:
    """Returns a torch tensor over the array's memory."""
    torch = sys.modules["torch"]
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def apply_views(array: Array, views: Iterable[Index]) -> Array:
    """Returns the array seen through the indices of a `TensorRef`. Copies nothing."""
    for index in views:
        # An index of ints alone would give a scalar; with an ellipsis NumPy keeps an array of rank 0.
        array = array[index if Ellipsis in index else (*index, ...)]
    return array


def as_value(array: Any) -> Any:
    """Returns what users see of an array: one of rank 0 becomes its number or bytes."""
    return array[()] if getattr(array, "ndim", 1) == 0 else array


def read_only(array: Any) -> Any:
    """Makes the values read-only: what a workflow sees is also what its next calls get."""
    if isinstance(array, np.ndarray) and array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def address_of(array: Array) -> int:
    """Returns where its first element lies in this process's memory."""
    return int(array.__array_interface__["data"][0])


def inline(array: Array) -> TensorRef:
    """Returns a reference that carries the array itself."""
    return TensorRef(dtype=dtype_of(array), shape=array.shape, num_bytes=array.nbytes, data=array)


def same_array(a: Array, b: Array) -> bool:
    """Returns whether two arrays are equal bit by bit (so NaN equals NaN)."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    return bool(a.tolist() == b.tolist()) if a.dtype == object else a.tobytes() == b.tobytes()
