"""Trace files are read as they were written, and an error names the line."""

from pathlib import Path

import pytest

from dyorc.errors import InvalidInputError
from dyorc.traffic.request_traces import TracedRequest, read_trace, write_trace


def test_what_is_written_is_read(tmp_path: Path) -> None:
    requests = (TracedRequest(0.5, "assist", 0.25), TracedRequest(0.5, "read"), TracedRequest(2.0))
    write_trace(tmp_path / "trace.csv", requests)

    assert read_trace(tmp_path / "trace.csv") == requests


@pytest.mark.parametrize(
    "text",
    [
        "workflow, time_s\nassist, 1.5\n\nread, 2\n",
        '{"time_s": 1.5, "workflow": "assist"}\n{"workflow": "read", "time_s": 2}\n',
    ],
)
def test_columns_have_any_order(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace").write_text(text)

    assert read_trace(tmp_path / "trace") == (TracedRequest(1.5, "assist"), TracedRequest(2.0, "read"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("1.0\nsoon\n", "line 2: time_s is 'soon'"),
        ("1.0\n\nnan\n", "line 3: time_s is 'nan'"),
        ("2.0\n1.0\n", r"line 2: time_s is 1\.0, expected at least the 2\.0 before it"),
        ("time_s,branch\n1,0.5\n2,1.0\n", r"line 3: branch is 1\.0"),
        ("time_s,workflow\n1,a\n2\n", "line 3 has 1 fields, expected 2: time_s, workflow"),
        ("time_s,colour\n1,red\n", "line 2 has the field 'colour'"),
        ('{"time_s": 1}\n{"time_s": 2', "line 2: "),
        ('{"time_s": 1}\n[2]\n', r"line 2 is \[2\], expected a JSON object"),
        ('{"time_s": 1}\n{"workflow": "a"}\n', "line 2: time_s is None"),
        ('{"time_s": 1, "workflow": 3}\n', "line 1: workflow is 3"),
    ],
)
def test_the_error_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "trace.csv").write_text(text)

    with pytest.raises(InvalidInputError, match=rf"trace\.csv,? {message}"):
        read_trace(tmp_path / "trace.csv")
