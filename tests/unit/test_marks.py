"""What the mark `real` is set by is still called so."""

from pathlib import Path

import pytest

from tests import real

_TESTS = Path(real.__file__).parent


@pytest.mark.parametrize("folder", real.FOLDERS)
def test_each_folder_is_there(folder: str) -> None:
    assert list((_TESTS / folder).glob("test_*.py"))


def test_each_starter_is_named_by_a_test() -> None:
    texts = [path.read_text() for path in _TESTS.rglob("*.py") if path.name not in ("real.py", Path(__file__).name)]
    assert not {starter for starter in real.STARTERS if not any(starter in text for text in texts)}
