"""Which paths the Unix socket refuses, replaces or leaves alone when it listens."""

import os
import socket
import stat
from pathlib import Path

import pytest

from dyorc.errors import TransportError
from dyorc.transport.link import dial
from tests.deadlines import wait_until_async
from tests.integration.links.hub import CONFIG, Hub


def _is_there(path: str) -> bool:
    return os.path.lexists(path)


def _write_mine(path: str) -> None:
    Path(path).write_text("mine")


def _is_mine(path: str) -> bool:
    return Path(path).read_text() == "mine"


@pytest.mark.parametrize("address", ["unix://", "unix://link", "unix:///a\0b"])
async def test_an_address_that_is_not_a_valid_path_is_refused(address: str) -> None:
    with pytest.raises(TransportError, match="is not an address like unix:///path"):
        dial(address, CONFIG, 1.0)
    with pytest.raises(TransportError, match="is not an address like unix:///path"):
        await Hub(address).__aenter__()


async def test_the_longest_path_works_and_one_byte_more_is_refused(folder: str) -> None:
    longest = f"unix://{folder}/".ljust(107 + len("unix://"), "x")
    async with Hub(longest):
        pass
    for refused in (longest + "x", f"{longest[:-1]}ä"):
        with pytest.raises(TransportError, match="has 108 bytes, the kernel takes 107: choose a shorter folder"):
            await Hub(refused).__aenter__()
        with pytest.raises(TransportError, match="has 108 bytes"):
            dial(refused, CONFIG, 1.0)


async def test_only_our_user_may_use_the_socket_and_it_is_removed_at_the_end(unix_address: str) -> None:
    path = unix_address.removeprefix("unix://")
    async with Hub(unix_address):
        assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
    assert not _is_there(path)


async def test_the_socket_of_a_dead_orchestrator_is_replaced(unix_address: str) -> None:
    path = unix_address.removeprefix("unix://")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
        dead.listen()
    assert _is_there(path)
    async with Hub(unix_address) as hub:
        dealer = dial(unix_address, CONFIG, 1.0)
        dealer.send([b"hello"])
        await wait_until_async(lambda: hub.heard, "it is heard")
        dealer.close()


async def test_the_socket_of_a_living_orchestrator_is_left_alone(unix_address: str) -> None:
    async with Hub(unix_address) as hub:
        with pytest.raises(TransportError, match="Address already in use"):
            await Hub(unix_address).__aenter__()
        dealer = dial(unix_address, CONFIG, 1.0)
        dealer.send([b"hello"])
        await wait_until_async(lambda: hub.heard, "it is heard")
        dealer.close()
        await wait_until_async(lambda: hub.lost, "it is lost")
        assert len(hub.lost) == 1, "checking whether it lives does not count as a peer"


async def test_a_file_that_is_not_a_socket_is_left_alone(unix_address: str) -> None:
    path = unix_address.removeprefix("unix://")
    _write_mine(path)
    with pytest.raises(TransportError, match="cannot listen on"):
        await Hub(unix_address).__aenter__()
    assert _is_mine(path)


async def test_a_file_that_somebody_else_has_put_there_is_left_alone(unix_address: str) -> None:
    path = unix_address.removeprefix("unix://")
    async with Hub(unix_address):
        os.rename(path, f"{path}.old")
        _write_mine(path)
    assert _is_mine(path)


async def test_a_missing_folder_is_named_in_the_error(folder: str) -> None:
    with pytest.raises(TransportError, match=f"cannot listen on unix://{folder}/none/link: No such file"):
        await Hub(f"unix://{folder}/none/link").__aenter__()
