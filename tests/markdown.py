"""The examples of the documentation, so that tests can run them."""

import re
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def python_examples(page: Path) -> list[str]:
    """The Python code of a page, block by block."""
    return _BLOCK.findall(page.read_text())
