"""A disk as a power cut may leave it.

What is synchronized is there. What was written since may be there, or not, or in part: any subset of the writes, each whole or
torn at sectors, and the length of a file without its bytes.

Names belong to their folder: that a file was made, renamed or removed is certain only after its folder was synchronized. Before,
any of these changes may be there, in order (as with a file system's journal) or not.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.power_cuts.file_log import Step, StepKind

_SECTOR = 512
_ROOT = "."
_HOW_WRITES_END = ("none", "all", "first", "some", "torn", "empty")


class _Change(NamedTuple):
    """Of a file: bytes at an offset, or a new length if `data` is None."""

    offset: int
    data: bytes | None


class _File:
    def __init__(self) -> None:
        self.durable = bytearray()
        self.pending: list[_Change] = []

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def copy(self) -> "_File":
        copy = _File()
        copy.durable, copy.pending = bytearray(self.durable), list(self.pending)
        return copy

    def after_cut(self, chance: random.Random, is_in_order: bool) -> bytes:
        content = bytearray(self.durable)
        how = chance.choice(_HOW_WRITES_END[:3] if is_in_order else _HOW_WRITES_END) if self.pending else "none"
        num_kept = chance.randrange(len(self.pending) + 1)
        for number, change in enumerate(self.pending):
            match how:
                case "none":
                    break
                case "first":
                    if number == num_kept:
                        _apply_torn(content, change, chance, is_prefix=is_in_order or chance.random() < 0.5)
                        break
                case "some":
                    if chance.random() < 0.5:
                        continue
                case "torn":
                    if chance.random() < 0.5:
                        _apply_torn(content, change, chance, is_prefix=chance.random() < 0.5)
                        continue
                case "empty":  # the length was written, the bytes were not
                    if change.data is not None and chance.random() < 0.5:
                        _apply(content, _Change(change.offset + len(change.data), b""))
                        continue
            _apply(content, change)
        return bytes(content)


def _apply(content: bytearray, change: _Change) -> None:
    if change.data is None:
        del content[change.offset :]
    content.extend(bytes(max(0, change.offset - len(content))))
    if change.data:
        content[change.offset : change.offset + len(change.data)] = change.data


def _apply_torn(content: bytearray, change: _Change, chance: random.Random, *, is_prefix: bool) -> None:
    """Applies some sectors of a write, each whole or not at all; as a prefix, the first ones."""
    if change.data is None:
        return
    at, end = change.offset, change.offset + len(change.data)
    share = chance.random()
    while at < end:
        upto = min(end, (at // _SECTOR + 1) * _SECTOR)
        if chance.random() < share:
            _apply(content, _Change(at, change.data[at - change.offset : upto - change.offset]))
        elif is_prefix:
            return
        at = upto


class _Folder:
    """Names in a folder; a change is all of its pairs of name and inode (None: no longer there), at once."""

    def __init__(self) -> None:
        self.durable: dict[str, int] = {}
        self.pending: list[tuple[tuple[str, int | None], ...]] = []

    def sync(self) -> None:
        for change in self.pending:
            _rename(self.durable, change)
        self.pending.clear()

    def copy(self) -> "_Folder":
        copy = _Folder()
        copy.durable, copy.pending = dict(self.durable), list(self.pending)
        return copy

    def after_cut(self, chance: random.Random) -> dict[str, int]:
        names = dict(self.durable)
        if chance.random() < 0.5:
            for change in self.pending[: chance.randrange(len(self.pending) + 1)]:
                _rename(names, change)
            return names
        skipped = set[str]()
        for change in self.pending:
            own = {name for name, _ in change}
            if skipped & own or chance.random() < 0.5:
                skipped |= own  # changes of one name stay in order
            else:
                _rename(names, change)
        return names


def _rename(names: dict[str, int], change: Sequence[tuple[str, int | None]]) -> None:
    for name, file in change:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


class Disk:
    """A disk to which steps are done.

    Args:
        is_in_order: Whether the writes to a file that are there are the first ones, the last of them torn at its end: as with a
            file system that orders the bytes before the length of a file that grows.

    Attributes:
        honours_syncs: Whether it does what it is asked to; a disk that does not says that it has.
    """

    def __init__(self, *, is_in_order: bool = False) -> None:
        self._is_in_order = is_in_order
        self.honours_syncs = True
        self._files: dict[int, _File] = {}
        self._folders: dict[str, _Folder] = {_ROOT: _Folder()}
        self._folder_inodes: set[int] = set()

    def copy(self) -> "Disk":
        """Returns another disk with the same on it."""
        copy = Disk(is_in_order=self._is_in_order)
        copy._files = {inode: file.copy() for inode, file in self._files.items()}
        copy._folders = {path: folder.copy() for path, folder in self._folders.items()}
        copy._folder_inodes = set(self._folder_inodes)
        return copy

    def do(self, step: Step) -> None:
        """Does a step."""
        match step.kind:
            case StepKind.CREATE:
                self._files[step.file] = _File()
                self._name(step.path, step.file)
            case StepKind.MAKE_FOLDER:
                self._folders[step.path] = _Folder()
                self._folder_inodes.add(step.file)
                self._name(step.path, step.file)
            case StepKind.WRITE:
                self._files[step.file].pending.append(_Change(step.offset, step.data))
            case StepKind.TRUNCATE:
                self._files[step.file].pending.append(_Change(step.offset, None))
            case StepKind.SYNC:
                if self.honours_syncs:
                    (self._folders[step.path] if step.path in self._folders else self._files[step.file]).sync()
            case StepKind.UNLINK | StepKind.REMOVE_FOLDER:
                self._name(step.path, None)
            case StepKind.RENAME:
                old, new = Path(step.path), Path(step.other)
                if old.parent == new.parent:
                    self._folder_of(step.path).pending.append(((old.name, None), (new.name, step.file)))
                else:
                    self._name(step.path, None)
                    self._name(step.other, step.file)
            case StepKind.MARK | StepKind.UNKNOWN:
                pass

    def _folder_of(self, path: str) -> _Folder:
        return self._folders[str(Path(path).parent)]

    def _name(self, path: str, file: int | None) -> None:
        self._folder_of(path).pending.append(((Path(path).name, file),))

    @classmethod
    def of(cls, folder: Path, *, is_in_order: bool) -> "Disk":
        """Returns a disk that has what is in a folder now."""
        disk = cls(is_in_order=is_in_order)
        for path in sorted(folder.rglob("*")):  # a folder before what is in it
            inode, name = path.stat().st_ino, str(path.relative_to(folder))
            disk._folder_of(name).durable[path.name] = inode
            if path.is_dir():
                disk._folders[name] = _Folder()
                disk._folder_inodes.add(inode)
            else:
                disk._files[inode] = file = _File()
                file.durable = bytearray(path.read_bytes())
        return disk

    def cut(self, chance: random.Random, to: Path) -> None:
        """Makes what a cut may leave, in a folder that is empty."""
        self._write(_ROOT, chance, to)

    def _write(self, path: str, chance: random.Random, to: Path) -> None:
        for name, inode in sorted(self._folders[path].after_cut(chance).items()):
            if inode in self._folder_inodes:
                (to / name).mkdir()
                self._write(str(Path(path) / name), chance, to / name)
            elif name.endswith("-shm"):  # shared memory, which has no meaning without the processes
                (to / name).write_bytes(chance.randbytes(chance.choice((0, 100, 32768))))
            else:
                (to / name).write_bytes(self._files[inode].after_cut(chance, self._is_in_order))
