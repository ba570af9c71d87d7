"""Checkpoints: parameters, buffers and the optimizer's state by logical value, so that any plan of the same model can go on.

A checkpoint is a folder:

    index.json            what there is: values, and for each region of a value, the file that holds it
    3f2a...-0.safetensors      what rank 0 wrote, each region once; and so on

The ranks write their files first, under new names, then the parent replaces the index at once: a reader sees the old checkpoint
or the new one. The index has each file's size and SHA-256, so a torn or changed file is noticed before anything is loaded.
"""

import contextlib
import hashlib
from collections.abc import Generator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.errors import CheckpointError
from dyorc.planner.plan import Plan, Region, extents, overlap, within
from dyorc.planner.program import ValueKind
from dyorc.planner.runtime.region_moves import Key, PieceAt, is_zero, terms_at
from dyorc.system.durable_files import replace_file, sync_file, sync_folder

_INDEX = "index.json"


class _Value(msgspec.Struct, frozen=True):
    shape: tuple[int, ...]
    dtype: str


class _File(msgspec.Struct, frozen=True):
    num_bytes: int
    sha256: str


class _Piece(msgspec.Struct, frozen=True):
    value: str
    region: tuple[tuple[int, int], ...]
    file: str
    name: str


class Index(msgspec.Struct, frozen=True):
    """What a checkpoint holds.

    Attributes:
        program: The digest of the program whose plan wrote it.
        step: How many steps of training are in it.
        values: By name.
        files: By name, in the same folder.
        pieces: For each region of a value, the file that holds it.
        format: Names the format and its version.
    """

    program: str
    step: int
    values: dict[str, _Value]
    files: dict[str, _File]
    pieces: tuple[_Piece, ...]
    format: Literal["dyorc checkpoint 1"] = "dyorc checkpoint 1"


def is_lasting(plan: Plan, value: str) -> bool:
    """Whether a source stays from step to step."""
    return plan.values[value].kind is not ValueKind.INPUT


def lasting_pieces(plan: Plan, rank: int) -> list[PieceAt]:
    """Returns the pieces of lasting sources that a rank is the first to hold: all ranks together have each region once."""
    first = [tensors[0] for value, tensors in plan.sources.items() if is_lasting(plan, value)]
    pieces = [piece for tensor in first for piece in terms_at(plan, tensor)]
    return [piece for piece in pieces if piece.rank == rank and not is_zero(plan, piece)]


def write_pieces(plan: Plan, rank: int, state: Mapping[Key, torch.Tensor], path: Path) -> tuple[tuple[str, Region, str], ...]:
    """Writes one rank's file, and returns each region with its value and its name in the file."""
    from safetensors.torch import save_file

    pieces = [piece for piece in lasting_pieces(plan, rank) if prod(extents(piece.region))]
    names = [f"{number}:{plan.tensors[piece.key.tensor].value}" for number, piece in enumerate(pieces)]
    tensors = {name: state[piece.key].detach().cpu().clone() for name, piece in zip(names, pieces, strict=True)}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    sync_file(path)
    values = [plan.tensors[piece.key.tensor].value for piece in pieces]
    return tuple(zip(values, [piece.region for piece in pieces], names, strict=True))


def commit(plan: Plan, step: int, folder: Path, written: Mapping[str, Sequence[tuple[str, Region, str]]]) -> None:
    """Makes the files that ranks have written the checkpoint, and removes those of the one before."""
    values = {value: plan.values[value] for value in plan.sources if is_lasting(plan, value)}
    index = Index(
        program=plan.program,
        step=step,
        values={name: _Value(value.shape, value.dtype) for name, value in values.items()},
        files={name: _file_of(folder / name) for name in written},
        pieces=tuple(_Piece(value, region, file, name) for file, regions in written.items() for value, region, name in regions),
    )
    sync_folder(folder)  # the names of the ranks' files: the index must not be on the disk before them
    replace_file(folder / _INDEX, msgspec.json.format(msgspec.json.encode(index), indent=1), 0o600)
    for path in folder.glob("*.safetensors"):
        if path.name not in index.files and path.is_file():  # not a folder that somebody has put there
            path.unlink()


class Checkpoint:
    """A checkpoint that is open for reading."""

    def __init__(self, folder: Path, index: Index, files: Mapping[str, Any]) -> None:
        self.index = index
        self._folder = folder
        self._files = files

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path) -> "Generator[Checkpoint]":
        """Opens a checkpoint.

        Raises:
            CheckpointError: It is none, or a file of it is missing or cannot be read.
        """
        from safetensors import safe_open

        index = read_index(folder)
        with contextlib.ExitStack() as stack:
            files: dict[str, Any] = {}
            for name in index.files:
                try:
                    files[name] = stack.enter_context(safe_open(folder / name, framework="pt"))
                except Exception as error:  # safetensors has its own error type
                    raise CheckpointError(f"{folder / name} of the checkpoint cannot be read: {error}") from error
            yield cls(folder, index, files)

    def read_piece(self, plan: Plan, piece: PieceAt) -> torch.Tensor:
        """Reads what a piece of a placed tensor covers."""
        value = plan.tensors[piece.key.tensor].value
        if is_zero(plan, piece):
            return torch.zeros(extents(piece.region), dtype=getattr(torch, plan.values[value].dtype))
        return self.read(value, piece.region)

    def read(self, value: str, region: Region | None = None) -> torch.Tensor:
        """Reads a region of a value, or all of it."""
        stored_value = self.index.values[value]
        region = tuple((0, extent) for extent in stored_value.shape) if region is None else region
        tensor = torch.empty(extents(region), dtype=getattr(torch, stored_value.dtype))
        for piece in self.index.pieces:
            if piece.value == value and (common := overlap(piece.region, region)) is not None:
                stored = self._files[piece.file]
                cut = within(common, piece.region)
                part = stored.get_slice(piece.name)[cut] if cut else stored.get_tensor(piece.name)
                tensor[within(common, region)] = part
        return tensor


def read_index(folder: Path) -> Index:
    """Reads what a checkpoint holds.

    Raises:
        CheckpointError: The folder holds none, or it is not whole.
    """
    path = folder / _INDEX
    try:
        index = msgspec.json.decode(path.read_bytes(), type=Index)
    except OSError as error:
        raise CheckpointError(f"{folder} holds no checkpoint: {path.name} cannot be read: {error}") from error
    except DECODE_ERRORS as error:
        raise CheckpointError(f"{path} is not the index of a checkpoint: {error}") from error
    for name, value in index.values.items():
        num_found = sum(prod(extents(piece.region)) for piece in index.pieces if piece.value == name)
        if num_found != prod(value.shape):
            raise CheckpointError(f"{path}: {num_found} of the {prod(value.shape)} elements of {name} are there")
    return index


def check_checkpoint(folder: Path, plan: Plan) -> Index:
    """Checks that a checkpoint is whole, and that it fits a plan; returns what it holds.

    Raises:
        CheckpointError: A file is missing or has changed, or a source that the plan needs is not there in its shape and type.
    """
    index = read_index(folder)
    for name, expected in index.files.items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"the checkpoint in {folder} lacks its file {name}")
        actual = _file_of(path)
        if actual != expected:
            differs = "size" if actual.num_bytes != expected.num_bytes else "content"
            raise CheckpointError(
                f"{path} of the checkpoint was changed or not written to its end: its {differs} is not what the index says "
                f"({actual.num_bytes} bytes, expected {expected.num_bytes})"
            )
    for value in plan.sources:
        if is_lasting(plan, value):
            wanted, stored = plan.values[value], index.values.get(value)
            if stored is None or (stored.shape, stored.dtype) != (wanted.shape, wanted.dtype):
                has = f"{stored.dtype} {list(stored.shape)}" if stored else "nothing of that name"
                raise CheckpointError(
                    f"the checkpoint in {folder} is of another model: the plan needs {value} as {wanted.dtype} "
                    f"{list(wanted.shape)}, and it holds {has}"
                )
    return index


def _file_of(path: Path) -> _File:
    with path.open("rb") as file:
        return _File(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())
