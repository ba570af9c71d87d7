"""Lines of keys, in all ways in which TOML writes keys and values."""

import tomllib

import pytest

from dyorc.system.toml_lines import KeyPath, lines_of

TEXT = '''\
# a comment = 1
workflows = [
    "a.py:x",  # not ] an end
    'b#.py:y',
]
"quoted = key" . inner = "a # b"
text = """
not = 1
[nor] \\""" this
"""
raw = \'\'\'
x = 1 \'\'\'

[gateway] # c
port = 1
when = 1979-05-27 07:32:00

[engine.speculation]
margin=1.5
[programs."large.v2"]
autoscaling_config = { min_replicas = 0, nested = [ [1, 2], [3] ] }
[[tables]]
a = 1
[[tables.inner]]
b = 1
[[tables]]
[[tables.inner]]
[[tables.inner]]
[tables.inner.deep]
b = 1
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("workflows",), 2),
        (("workflows", 0), 3),
        (("workflows", 1), 4),
        (("quoted = key", "inner"), 6),
        (("text",), 7),
        (("raw",), 11),
        (("gateway",), 14),
        (("gateway", "port"), 15),
        (("gateway", "when"), 16),
        (("engine", "speculation", "margin"), 19),
        (("programs", "large.v2"), 20),
        (("programs", "large.v2", "autoscaling_config", "min_replicas"), 21),
        (("programs", "large.v2", "autoscaling_config", "nested", 1, 0), 21),
        (("tables",), 22),
        (("tables", 0, "a"), 23),
        (("tables", 0, "inner", 0, "b"), 25),
        (("tables", 1), 26),
        (("tables", 1, "inner"), 27),
        (("tables", 1, "inner", 1, "deep", "b"), 30),
    ],
)
def test_the_line_of_each_key_is_found(path: KeyPath, line: int) -> None:
    tomllib.loads(TEXT)
    assert lines_of(TEXT)[path] == line


def test_nothing_inside_of_a_text_is_taken_for_a_key() -> None:
    assert {path[0] for path in lines_of(TEXT)} == {
        "workflows", "quoted = key", "text", "raw", "gateway", "engine", "programs", "tables",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "\n\n", "# only", "a = 1", 'a = ""', "a = []", "a = {}", "a.b=[{c=1}]\r\nd = 2"])
def test_short_and_empty_files_are_read(text: str) -> None:
    assert {path[0] for path in lines_of(text)} == set(tomllib.loads(text))
