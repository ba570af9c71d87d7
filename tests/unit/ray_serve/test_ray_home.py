"""The folder of a Ray of our own: refused before anything starts if Ray's sockets would not fit below it."""

import tempfile
from pathlib import Path

import pytest

from dyorc.errors import ConfigurationError
from dyorc.ray_serve.ray_home import RayHome


def test_a_folder_whose_path_is_too_long_for_sockets_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 60)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    expected = f"{folder}, has a path of .* bytes, .* set TMPDIR to a path of at most 2. bytes"
    with pytest.raises(ConfigurationError, match=expected), RayHome():
        pass
    assert not list(folder.iterdir())
