"""``dyorc keys``: what it prints, writes and refuses."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dyorc.cli.keys import app
from dyorc.errors import AuthenticationError, ConfigurationError, PermissionDeniedError
from dyorc.gateway.access import Access
from dyorc.gateway.keys import id_of, read_tenants


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the keys file, as the environment names it."""
    path = tmp_path / "keys.toml"
    monkeypatch.setenv("DYORC_GATEWAY__KEYS_FILE", str(path))
    return path


def keys(*arguments: str) -> Result:
    """Runs the command; what it raises is raised here."""
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_key_is_printed_once_and_lets_its_tenant_in_until_it_is_revoked(file: Path) -> None:
    key = keys("add", "--tenant", "one").stdout.strip()
    other = keys("add", "--tenant", "one", "--note", "[b]x").stdout.strip()
    assert file.stat().st_mode & 0o777 == 0o600
    assert Access(str(file)).tenant_of(key).name == "one"
    shown = keys("list").stdout
    assert id_of(key) in shown
    assert "[b]x" in shown
    assert key.split("_", 2)[2] not in shown + file.read_text()
    keys("revoke", id_of(key))
    access = Access(str(file))
    assert access.tenant_of(other).name == "one"
    with pytest.raises(AuthenticationError):
        access.tenant_of(key)


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_a_list_shows_all_of_every_limit_however_narrow_the_terminal(
    file: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    limits = ["--max-requests", "100000", "--max-bytes", "268435456", "--max-requests-per-s", "50000", "--weight", "2.5"]
    models = [part for number in range(5) for part in ("--model", f"model-with-a-long-name-{number}")]
    keys("add", "--tenant", "search-in-the-large", *limits, *models, "--note", "the crawler of the night " * 5)
    monkeypatch.setenv("COLUMNS", columns)
    heading, line = keys("list").stdout.splitlines()
    for part in (
        "search-in-the-large",
        "100000 requests, 268435456 bytes, 50000 requests/s",
        "model-with-a-long-name-4",
        "night",
    ):
        assert part in line
    assert "\N{HORIZONTAL ELLIPSIS}" not in line
    assert heading.split() == ["tenant", "weight", "limits", "models", "key", "expires", "priority", "note"]


def test_a_key_carries_the_highest_priority_that_it_may_ask_for(file: Path) -> None:
    made = [keys("add", "--tenant", "one", *given).stdout.strip() for given in ([], *(["--highest-priority", at] for at in "03"))]
    listed = keys("list").stdout.splitlines()[1:]
    assert [line.split()[-1] for line in listed if line.strip()] == ["any", "none", "3"], listed
    access = Access(str(file))
    for key, allowed, refused in zip(made, ([0, 1, 9], [0], [0, 3, 9]), ([], [1, 9], [1, 2]), strict=True):
        for priority in allowed:
            access.tenant_of(key).check_priority(priority)
        for priority in refused:
            with pytest.raises(PermissionDeniedError, match=f"priority {priority} is too high for this key of tenant 'one'"):
                access.tenant_of(key).check_priority(priority)


def test_limits_given_with_a_key_change_its_tenant_and_leave_the_rest(file: Path) -> None:
    keys("add", "--tenant", "one", "--max-requests", "5", "--model", "a", "--model", "b")
    keys("add", "--tenant", "two")
    keys("add", "--tenant", "one", "--max-requests-per-s", "0.5", "--weight", "2", "--valid-days", "1")
    one, two = read_tenants(file)
    assert (one.max_requests, one.models, one.max_requests_per_s, one.weight) == (5, ["a", "b"], 0.5, 2.0)
    assert [key.expires is None for key in one.keys] == [True, False]
    left = (one.keys[1].expires or datetime.now(UTC)) - datetime.now(UTC)
    assert timedelta(hours=23) < left <= timedelta(days=1)
    assert (two.name, two.max_requests, len(two.keys)) == ("two", None, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "--tenant", "two words"),
        ("add", "--tenant", ""),
        ("add", "--tenant", "one", "--max-requests", "0"),
        ("add", "--tenant", "one", "--weight", "0"),
        ("revoke", "nobody"),
    ],
)
def test_invalid_arguments_are_refused_and_change_nothing(file: Path, arguments: tuple[str, ...]) -> None:
    keys("add", "--tenant", "one")
    before = file.read_bytes()
    with pytest.raises(ConfigurationError):
        keys(*arguments)
    assert file.read_bytes() == before


def test_the_keys_file_of_the_configuration_file_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYORC_GATEWAY__KEYS_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dyorc.toml").write_text("gateway.keys_file = 'of_the_file.toml'")
    keys("add", "--tenant", "one")
    assert (tmp_path / "of_the_file.toml").exists()


def test_without_a_file_the_command_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYORC_GATEWAY__KEYS_FILE", raising=False)
    with pytest.raises(ConfigurationError, match=r"--file, or the setting gateway\.keys_file"):
        keys("list")
