"""The keys of a cluster: a file that `dyorc cluster-keys` makes; without it, nobody gets in."""

import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dyorc.config import LinkConfig
from dyorc.errors import ConfigurationError
from dyorc.transport.cluster_network import read_keys, write_new_keys
from dyorc.transport.link import dial, listen
from dyorc.transport.peer_process import LinkCallbacks
from tests.deadlines import wait_until_async


def test_the_command_makes_keys_that_only_this_user_can_read_and_never_replaces_any(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    command = [sys.executable, "-m", "dyorc.cli.main", "cluster-keys", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    keys = read_keys(str(path))
    assert keys == read_keys(str(path)), "every process, and the next one of a process that ended, has the same"
    assert keys.token not in done.stdout
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert f"'{path}' exists and was not changed" in " ".join(again.stderr.split())
    assert read_keys(str(path)) == keys


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"public": "geheim", "secret": "geheim", "token": ""}', b"\xff", b'{"seed": "geheim"}']
)
def test_a_file_with_something_else_is_named_and_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        read_keys(str(path))
    assert str(path) in str(caught.value)
    assert "geheim" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"cannot be read from .*none"):
        read_keys(str(tmp_path / "none"))


def _write_seed(path: Path) -> None:
    path.write_text(json.dumps({"seed": f"{path.name} and thirty-two more characters"}))


def test_equal_seeds_are_equal_keys_and_others_are_not(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        _write_seed(tmp_path / name)
    ours, again, theirs = (read_keys(str(tmp_path / name)) for name in ("ours", "ours", "theirs"))
    assert ours == again
    assert len({ours.keys.secret, theirs.keys.secret, ours.keys.public, theirs.keys.public, ours.token, theirs.token}) == 6


@pytest.mark.parametrize("write", [write_new_keys, _write_seed])
async def test_only_those_with_the_clusters_keys_are_heard(tmp_path: Path, write: Callable[[Path], None]) -> None:
    for name in ("ours", "theirs"):
        write(tmp_path / name)
    ours, theirs = (read_keys(str(tmp_path / name)).keys for name in ("ours", "theirs"))
    heard: list[bytes] = []
    callbacks = LinkCallbacks(lambda peer, frames: heard.append(bytes(frames[0])), lambda: None, lambda peer, ending: None)
    async with listen("tcp://127.0.0.1:*", LinkConfig(), callbacks, keys=ours) as link:
        dealers = [dial(link.address, LinkConfig(), 0.1, keys=keys) for keys in (None, theirs, ours)]
        try:
            for dealer, name in zip(dealers, (b"nobody", b"stranger", b"member"), strict=True):
                dealer.send([name])
            await wait_until_async(lambda: heard, "the member is heard")
            assert heard == [b"member"]
        finally:
            for dealer in dealers:
                dealer.close(0)
