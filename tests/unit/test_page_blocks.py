"""The code of pages without servers runs, as docs/testing/code-blocks.md says. Pages with servers: tests/e2e/test_pages.py."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.markdown import blocks, python_examples
from tests.pages.commands import PageError, commands, missing_lines
from tests.pages.page_run import needs_server

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
_WITH_CODE = [page for page in PAGES if any(block.runs and "not run" not in block.markers for block in blocks(page))]
_GUIDES = [page for page in PAGES if page.parent.name in ("tutorial", "how-to")]
_INDENTED = re.compile(r"(?<=\n)\n {4}(?:curl|docker|dyorc|helm|kubectl|make|python|pip|uv) ")
"""The beginning of an indented block of commands, which is not run: in these pages they should be in fences."""
_NOT_RUN: dict[str, int] = {
    "docs/concepts/tensor-path.md": 2,
    "docs/how-to/deploy.md": 4,
    "docs/how-to/doctor.md": 1,
    "docs/how-to/gpu.md": 2,
    "docs/how-to/hugging-face.md": 2,
    "docs/how-to/images.md": 3,
    "docs/how-to/install.md": 4,
    "docs/how-to/jobs.md": 1,
    "docs/how-to/kubernetes.md": 3,
    "docs/how-to/scale.md": 3,
    "docs/how-to/serving-by-plan.md": 1,
    "docs/how-to/simulation.md": 1,
    "docs/how-to/updates.md": 1,
    "docs/reference/http.md": 1,
    "docs/tutorial/1-cascade.md": 1,
    "docs/tutorial/7-cluster.md": 5,
}
"""How many blocks of a page are not run. It may only shrink: mend a page's blocks rather than add to this."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in _WITH_CODE if not needs_server(page)], ids=_name)
def test_the_code_of_a_page_runs(page: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "tests.pages", str(page)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    left_out = [block for page in PAGES for block in blocks(page) if block.runs and "not run" in block.markers]
    assert all(len(block.markers["not run"]) > 5 for block in left_out), "<!-- not run: REASON -->"
    indented = Counter({_name(page): len(_INDENTED.findall(page.read_text())) for page in _GUIDES})
    assert Counter(_name(block.page) for block in left_out) + indented == Counter(_NOT_RUN)


def _run(tmp_path: Path, text: str) -> int:
    page = tmp_path / "page.md"
    page.write_text(text)
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    code = "import sys, pathlib; from tests.pages.page_run import run_page; print(run_page(*map(pathlib.Path, sys.argv[1:])))"
    process = subprocess.run(
        [sys.executable, "-c", code, str(page), str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise PageError(process.stderr)
    return int(process.stdout.splitlines()[-1])


def test_blocks_share_names_and_files(tmp_path: Path) -> None:
    page = """
```python title="lib.py"
two = 2
```

```python
import asyncio
from lib import two
four = await asyncio.sleep(0, two * 2)
```

<!-- hidden
```python
print(four)
```
-->

<!-- output -->
```text
4
```

```console
$ cat lib.py
two = ...
$ echo a \\
> b
a b
```

<!-- numbers vary -->
```console
$ echo it took 31.5 ms
it took 4 ms
```

<!-- fails -->
```sh
false
true
```

<!-- raises: ZeroDivisionError -->
```python
1 / 0
```

<!-- not run: there is no such machine -->
```python
1 / 0
```
"""
    assert _run(tmp_path, page) == 6


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 / 0\n```",
        "<!-- raises: ZeroDivisionError -->\n```python\n1\n```",
        "```sh\nfalse\ntrue\n```",
        "<!-- fails -->\n```sh\ntrue\n```",
        "```console\n$ echo a\nb\n```",
        "```console\n$ printf 'b\\na\\n'\na\nb\n```",
        "```python\nprint(1)\n```\n<!-- output -->\n```text\n2\n```",
        "<!-- not ran: typing error -->\n```python\n1\n```",
        "```console\ndyorc\n```",
        "```python\n1\n",
    ],
)
def test_a_block_that_does_something_else_fails(tmp_path: Path, text: str) -> None:
    with pytest.raises(PageError):
        _run(tmp_path, text)


def test_files_of_an_earlier_page_are_there(tmp_path: Path) -> None:
    (tmp_path / "first.md").write_text('```toml title="a/b.toml"\nx = 1\n```\n')
    assert _run(tmp_path, "<!-- files of: first.md -->\n```console\n$ cat a/b.toml\nx = 1\n```\n") == 1


def test_a_terminal_is_left_running_and_ended(tmp_path: Path) -> None:
    loop = "echo started; trap 'echo ended > end; exit 0' INT; while true; do sleep 0.1; done"
    page = f"""
```sh title="server.sh"
{loop}
```
<!-- background: started -->
```console
$ bash server.sh
```
```console
$ test ! -e end
```
<!-- stop -->
```console
$ cat end
ended
```
"""
    assert _run(tmp_path, page) == 3
    assert needs_server(tmp_path / "page.md")


def test_a_terminal_that_ends_fails(tmp_path: Path) -> None:
    with pytest.raises(PageError, match="ended with 1"):
        _run(tmp_path, "<!-- background: ready -->\n```console\n$ false\n```\n")


def test_hidden_blocks_are_no_examples(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- hidden\n```python\na\n```\n-->\n```python\nb\n```\n")
    assert python_examples(page) == ["b\n"]
    assert [block.code for block in blocks(page)] == ["a\n", "b\n"]
    assert [block.line for block in blocks(page)] == [3, 7]


def test_lines_are_compared_in_order() -> None:
    assert missing_lines("a\n...\nb 1.5 ms", "x\na\ny\nb  1.5 ms", numbers_vary=False) == []
    assert missing_lines("b\na", "a\nb", numbers_vary=False) == ["a"]
    assert missing_lines("took 1 ms", "took 1,200.5 ms", numbers_vary=True) == []
    assert missing_lines("took ... ms", "took 7 s", numbers_vary=False) == ["took ... ms"]
    assert missing_lines("a\na", "a", numbers_vary=False) == ["a"]


def test_a_console_block_is_cut_into_commands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ one \\\n  more\nout\n$ two\n```\n")
    assert [(command.text, command.shown) for command in commands(blocks(page)[0])] == [("one \\\n  more", "out"), ("two", "")]
