"""The NumPy side of `dyorc.core.tensor`: element types, views, and arrays that arrive from user code.

BF16 is `ml_dtypes.bfloat16`; BYTES is an object array of `bytes`.
"""

import sys
from collections.abc import Iterable
from itertools import chain, compress
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dyorc.core.tensor import TENSOR_TYPES, DType, Index, TensorRef
from dyorc.errors import InvalidInputError

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
_BOOLS = frozenset({bool, np.bool_})
_BIG_ENDIAN = ">" if sys.byteorder == "little" else "="
"""NumPy's character for this machine's byte order."""


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Returns NumPy's type for `dtype`, little-endian."""
    return _NUMPY[dtype]


def dtype_of(array: Array) -> DType:
    """Returns the protocol's type of an array.

    Raises:
        InvalidInputError: If the protocol has no such type, as for complex numbers.
    """
    try:
        return _DTYPES[array.dtype]
    except KeyError:
        raise InvalidInputError(
            f"arrays of {array.dtype} cannot be sent; expected one of {[d.value for d in TENSOR_TYPES]}"
        ) from None


def as_array(value: Any, dtype: DType, label: str) -> Array:
    """Converts a value from user code (array, tensor, list, number, text) to an array.

    Python numbers, lists and texts take the declared `dtype`; arrays and tensors keep their own, in little-endian byte order.

    Raises:
        InvalidInputError: If it cannot be converted; names `label`. Exceptions that NumPy does not raise, such as a signal
            handler's, pass.
    """
    try:
        return _as_array(value, dtype, label)
    except InvalidInputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{label}: {type(value).__name__} cannot become a tensor of {dtype}: {error}") from error


def _as_array(value: Any, dtype: DType, label: str) -> Array:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _sendable(_dense_to_numpy(value, label), label)
    if isinstance(value, np.ndarray | np.generic):
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise InvalidInputError(f"{label}: a masked array has masked elements, which have no value; use its filled()")
        array: Array = np.asarray(value)
        if array.dtype.kind in "SUOT":
            return _as_bytes(array, label)
        if array.dtype.byteorder == _BIG_ENDIAN:
            array = array.astype(array.dtype.newbyteorder("<"))
        return _sendable(array, label)
    if torch is not None and isinstance(value, list | tuple):
        items: Iterable[Any] = value  # pyright: ignore[reportUnknownVariableType]
        value = [_dense_to_numpy(item, label) if isinstance(item, torch.Tensor) else item for item in items]
    if dtype is DType.BYTES:
        return _as_bytes(np.asarray(value, dtype=object), label)
    return _as_declared(value, dtype, label)


def _sendable(array: Array, label: str) -> Array:
    try:
        dtype_of(array)
    except InvalidInputError as error:
        raise InvalidInputError(f"{label}: {error}") from None
    return array


def _as_declared(value: Any, dtype: DType, label: str) -> Array:
    """Converts numbers, which may be nested in lists, to exactly `dtype`."""
    target = _NUMPY[dtype]
    array = np.asarray(value)
    is_float = target.kind not in "biu"
    if array.size == 0:
        return array.astype(target)
    kinds = {"b": "b", "i": "iu", "u": "iu"}.get(target.kind, "iuf")
    if array.dtype.kind not in kinds and not (target.kind != "b" and are_numbers(array, with_floats=is_float)):
        raise InvalidInputError(f"{label}: {value!r} is {_kind_of(array)}, expected {dtype}")
    if target.kind != "b" and has_bools(value, array):
        raise InvalidInputError(f"{label}: a list holds bools among numbers, expected {dtype}")
    if target.kind in "iu":
        limits = np.iinfo(target)
        is_outside = bool(array.min() < limits.min or array.max() > limits.max)
        converted = array if is_outside else array.astype(target)
    else:
        with np.errstate(all="ignore"):
            array = array.astype(np.float64) if array.dtype == object else array
            converted = array.astype(target)
            is_outside = is_float and bool((np.isinf(converted) & np.isfinite(array)).any())
    if is_outside:
        raise InvalidInputError(f"{label}: it holds a number outside the range of {dtype}: {array.min()} to {array.max()}")
    return converted


def _kind_of(array: Array) -> str:
    """Returns what an array of no numbers holds, for an error."""
    if array.dtype.kind in "US":
        return "text"
    if array.dtype == object:
        return f"a {type(array.item()).__name__}" if array.ndim == 0 else "a list of other things than numbers"
    return f"of {array.dtype}"


def are_numbers(array: Array, *, with_floats: bool) -> bool:
    """Returns whether an object array holds only integers, and floats if `with_floats`. Some are then beyond 64 bits."""
    kinds = (int, float) if with_floats else (int,)
    return array.dtype == object and all(type(item) in kinds for item in array.reshape(-1).tolist())


def has_bools(value: Any, array: Array) -> bool:
    """Returns whether nested lists hold a bool, which NumPy takes for 1 or 0 where there are numbers beside it.

    Args:
        array: What NumPy has made of them.
    """
    if not isinstance(value, list | tuple):
        return False
    may_be = (array == 0) | (array == 1)
    if not may_be.any():
        return False
    items: Iterable[Any] = value  # pyright: ignore[reportUnknownVariableType]
    for _ in range(array.ndim - 1):
        items = chain.from_iterable(items)
    return not _BOOLS.isdisjoint(map(type, compress(items, may_be.tobytes())))


def _as_bytes(array: Array, label: str) -> Array:
    """Returns texts (as UTF-8) and byte strings in an object array."""
    result = np.empty(array.shape, dtype=object)
    for at, item in np.ndenumerate(array):
        if isinstance(item, np.ndarray) and item.ndim == 0:
            item = item.item()
        if isinstance(item, str):
            item = item.encode()
        if not isinstance(item, bytes):
            raise InvalidInputError(f"{label}: an element is {type(item).__name__} {item!r}, expected bytes or str")
        result[at] = bytes(item)
    return result


def _dense_to_numpy(tensor: Any, label: str) -> Array:
    torch = sys.modules["torch"]
    if tensor.is_quantized:
        raise InvalidInputError(f"{label}: a quantized tensor cannot be sent; use its dequantize() or int_repr()")
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise InvalidInputError(f"{label}: a tensor of layout {tensor.layout} cannot be sent; use its to_dense()")
    if tensor.is_meta:
        raise InvalidInputError(f"{label}: a tensor on the device 'meta' has no values")
    return torch_to_numpy(tensor)


def torch_to_numpy(tensor: Any) -> Array:
    """Returns a torch tensor's values on the host; shares memory where possible."""
    torch = sys.modules["torch"]
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def numpy_to_torch(array: Array) -> Any:
    """Returns a torch tensor over the array's memory."""
    torch = sys.modules["torch"]
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def element_of_bytes(item: bytes) -> Array:
    """Returns a tensor of BYTES of rank 0."""
    array = np.empty((), object)
    array[()] = item
    return array


def apply_views(array: Array, views: Iterable[Index]) -> Array:
    """Returns the array seen through the indices of a `TensorRef`. Copies nothing."""
    for index in views:
        # An index of ints alone would give a scalar; with an ellipsis NumPy keeps an array of rank 0.
        array = array[index if Ellipsis in index else (*index, ...)]
    return array


def as_value(array: Any) -> Any:
    """Returns an array as users see it: an array of rank 0 becomes its number or bytes."""
    return array[()] if getattr(array, "ndim", 1) == 0 else array


def read_only(array: Any) -> Any:
    """Makes the values read-only: a workflow sees the memory that its next calls get."""
    if isinstance(array, np.ndarray) and array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def freeze(array: Array) -> Array:
    """Makes an array's memory read-only, and returns a view of it, for which `is_frozen` holds if it is an array's own memory.

    A row of a column of numbers may be a NumPy scalar, which nobody can write to: it is returned as it is.
    """
    if isinstance(array, np.generic):
        return array
    array.flags.writeable = False
    return array.view()


def is_frozen(array: Array) -> bool:
    """Returns whether an array's values stay as they are: it is a view, and nothing that it is a view of can be written to.

    An array that owns its memory does not count: who holds it can switch its ``writeable`` flag on again. NumPy also makes
    read-only views of writable memory (`broadcast_to`, `sliding_window_view`, a read-only `memoryview`).
    """
    if array.base is None:
        return False
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base is None or type(base) is bytes


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
