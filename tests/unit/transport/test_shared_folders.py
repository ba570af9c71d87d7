"""Which processes read each other's arenas in place: those of one node, or those that have mounted one folder."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from dyorc.config import TransportConfig
from dyorc.transport.arena_file import identity_of
from dyorc.transport.tensor_path import TensorExchange


@pytest.mark.parametrize(
    ("is_same_node", "is_same_folder", "by_folder", "is_read"),
    [
        (True, True, False, True),
        (False, True, False, False),
        (False, True, True, True),
        (True, False, True, False),
    ],
)
def test_arenas_are_read_where_they_lie(
    is_same_node: bool, is_same_folder: bool, by_folder: bool, is_read: bool, tmp_path: Path
) -> None:
    (tmp_path / "memory").mkdir()
    elsewhere = tmp_path / "mounted"  # the same folder by another path, as in another container
    elsewhere.symlink_to(tmp_path / "memory") if is_same_folder else elsewhere.mkdir()
    with ExitStack() as stack:
        configs = [
            TransportConfig(arena_folder=str(folder), arena_bytes=2**20, inline_limit_bytes=0, share_by_folder=by_folder)
            for folder in (tmp_path / "memory", elsewhere)
        ]
        maker = stack.enter_context(TensorExchange("maker", "a", configs[0]))
        reader = stack.enter_context(TensorExchange("reader", "a" if is_same_node else "b", configs[1]))
        routes = reader.routes()
        stack.callback(routes.close)
        viewer = routes.viewer(maker.holder)
        assert (viewer.name if viewer else "") == ("shm" if is_read else "")


def test_a_folder_is_itself_by_any_path_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    assert identity_of(str(tmp_path / "folder")) == identity_of(str(tmp_path / "link"))
    assert identity_of(str(tmp_path / "folder")) != identity_of(str(tmp_path))
    assert identity_of("/dev/shm") != identity_of("/tmp")
