"""Pages are read as their readers see them, and an output that the code no longer prints is found."""

from pathlib import Path

import pytest

from tests.page_blocks import blocks_of, difference
from tests.run_page import PageFailed, PageRun

_PAGE = """\
<!-- files of: other.md -->
<!-- run: touch hidden -->

```python title="app.py"
VALUE = 3
```

```python
from app import VALUE
print("value", VALUE)
```

```text
value 7
```

* an item

  ```sh
  ls
  ```

<!-- not run: needs a GPU -->
```sh
nvidia-smi
```
"""


def test_blocks_have_files_outputs_and_reasons(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(_PAGE)
    blocks = blocks_of(page)
    assert [block.language for block in blocks] == ["files of", "sh", "python", "python", "sh", "sh"]
    assert [block.title for block in blocks] == ["", "", "app.py", "", "", ""]
    assert [block.output for block in blocks] == [None, None, None, "value 7\n", None, None]
    assert blocks[4].code == "ls\n"
    assert [block.not_run for block in blocks] == ["", "", "", "", "", "needs a GPU"]


@pytest.mark.parametrize("text", ["```text\nx\n```\n", "<!-- not run: why -->\n"])
def test_an_output_or_a_reason_without_a_block_is_refused(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=r"page.md:1: .* no block"):
        blocks_of(page)


@pytest.mark.parametrize(
    ("shown", "printed", "agree"),
    [
        ("a 1.5 ms", "a 2 ms", True),
        ("a  1", "a      1,000.5", True),
        ("p50 3.1", "p50 -", True),
        ("a 1", "b 1", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...", "a", True),
        ("a ... z", "a b c z", True),
        ("a", "a\nb", False),
        ("a\nb", "a", False),
        ("───", "──────", True),
    ],
)
def test_outputs_are_compared_up_to_numbers_and_dots(shown: str, printed: str, agree: bool) -> None:
    assert (difference(shown, printed) == "") is agree


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ('```python\nprint("b")\n```\n\n```text\na\n```\n', "the page shows:\na"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```sh\nfalse\n```\n", "status 1"),
    ],
)
def test_a_page_that_is_wrong_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "folder"
    page.write_text(code)
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(PageFailed, match=why):
        PageRun(page).run()
