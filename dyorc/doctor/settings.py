"""Checks of the settings: whether they can be read, and whether the files and stores that they name can be used."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from dyorc.config import Settings
from dyorc.doctor.finding import Finding, Subject, error, ok
from dyorc.errors import DefinitionError
from dyorc.settings.setting_names import SETTINGS, dotted, value_of
from dyorc.store.opening import store_of
from dyorc.store.sqlite import SqliteStore

_NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs"}
"""Where SQLite's log, which readers and writers share by memory, does not work."""
_REDIS_PORT = 6379
_TIMEOUT_S = 1.0


def check_settings(subject: Subject) -> Iterator[Finding]:
    """Says whether the environment and the configuration file can be read."""
    if subject.settings_error:
        for line in subject.settings_error.splitlines():
            yield error(line, "correct it; `dyorc config defaults` prints every setting with its default")
        return
    for name, path in _files(subject.settings):
        if not path.is_file():
            why = "is a folder" if path.is_dir() else "is not there"
            yield error(f"{name} names {path}, which {why}", "correct the path, or leave the setting out")
        elif not os.access(path, os.R_OK):
            yield error(f"{name} names {path}, which this user may not read", "change who may read it")
    names = sorted(name for name in os.environ if name.startswith("DYORC_"))
    yield ok(f"settings from {subject.config or 'no file'}, and {', '.join(names) or 'no variable DYORC_... of the environment'}")


def _files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yields the files that settings name."""
    for path, setting in SETTINGS.items():
        if setting.is_file and path[-1].endswith("_file") and (value := value_of(settings, path)):
            yield dotted(path), Path(str(value))


def check_store(subject: Subject) -> Iterator[Finding]:
    """Looks whether jobs can be stored."""
    try:
        store = store_of(subject.settings.store)
    except (DefinitionError, ImportError, ValueError) as problem:
        yield error(f"DYORC_STORE cannot be used: {problem}", "set DYORC_STORE to sqlite:///path or redis://host/0")
        return
    if isinstance(store, SqliteStore):
        yield _file_finding(store.path)
    else:
        yield _redis_finding(subject.settings.store)


def _file_finding(path: Path) -> Finding:
    folder = next(folder for folder in path.parents if folder.exists())
    if not os.access(folder, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.R_OK | os.W_OK)):
        return error(
            f"jobs cannot be stored in {path}: this user may not write there",
            "set DYORC_STORE to sqlite:///path of a file that it may write",
        )
    kind = _file_system_of(folder)
    if kind in _NETWORK_FILE_SYSTEMS:
        return error(
            f"{path} lies on a network file system ({kind}), where SQLite loses jobs",
            "set DYORC_STORE to a file on a local disk, or to redis://host/0",
        )
    return ok(f"jobs are stored in {path}")


def _file_system_of(folder: Path) -> str:
    """Returns the kind of the file system that holds a folder; empty where the system does not say."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    real = folder.resolve()
    holding = [(Path(place), kind) for place, kind in mounts if real.is_relative_to(place)]
    return max(holding, key=lambda mount: len(mount[0].parts), default=(real, ""))[1]


def _redis_finding(setting: str) -> Finding:
    parts = urlsplit(setting)
    place = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or _REDIS_PORT}"  # without the password
    try:
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_TIMEOUT_S)
                connection.connect(parts.path)
        else:
            socket.create_connection((parts.hostname or "127.0.0.1", parts.port or _REDIS_PORT), timeout=_TIMEOUT_S).close()
    except OSError as problem:
        return error(
            f"Redis at {place} cannot be reached: {problem.strerror or problem}", "start it, or set DYORC_STORE to where it is"
        )
    return ok(f"jobs are stored in Redis; {place} takes connections")
