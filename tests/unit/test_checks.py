"""The checks that run elsewhere, at a commit and on GitHub, are those of the Makefile."""

import re
from pathlib import Path
from typing import Any

import yaml

_ROOT = Path(__file__).parents[2]
_MAKEFILE = (_ROOT / "Makefile").read_text()


def _read(path: str) -> Any:
    return yaml.safe_load((_ROOT / path).read_text())


def test_the_workflow_calls_targets_of_the_makefile() -> None:
    job = _read(".github/workflows/ci.yml")["jobs"]["make"]
    targets = job["strategy"]["matrix"]["target"]
    commands = {step["run"].splitlines()[-1]: step["if"] for step in job["steps"] if "run" in step}
    assert commands == {
        "make ${{ matrix.target }}": "matrix.target != 'compose-test'",
        'sudo env "PATH=$PATH" make compose-test': "matrix.target == 'compose-test'",
    }
    tests = {"test", "test-real", "test-slow", "test-compiled", "test-dist", "first-answer", "compose-test"}
    assert tests | {"lint", "lint-macos", "docs"} == set(targets)
    assert all(re.search(rf"^{target}:.* ## ", _MAKEFILE, re.MULTILINE) for target in targets)
    assert re.search(r"^test-dist: dist ", _MAKEFILE, re.MULTILINE), "what is tested is what was built"


def test_a_commit_is_checked_by_all_that_make_lint_runs() -> None:
    (repository,) = _read(".pre-commit-config.yaml")["repos"]
    at_commit = [hook["entry"].replace(" --force-exclude", "") for hook in repository["hooks"]]
    recipe = _MAKEFILE.partition("\nlint:")[2].partition("\n\n")[0].splitlines()[1:]
    assert at_commit == [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe]
