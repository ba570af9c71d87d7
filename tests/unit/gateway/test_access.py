"""API keys: the file, changes of it, and what the error of a wrong key reveals."""

import hashlib
import hmac
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from dyorc.errors import AuthenticationError, ConfigurationError
from dyorc.gateway.access import Access
from dyorc.gateway.keys import KeyRecord, TenantRecord, digest, id_of, new_key, read_tenants, write_tenants
from dyorc.gateway.tenants import ANONYMOUS
from tests.manual_clock import ManualClock

NOON_S = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Returns the path of the keys file."""
    return tmp_path / "keys.toml"


def write(path: Path, **tenants: KeyRecord) -> None:
    """Writes a file with one key for each tenant."""
    write_tenants(path, [TenantRecord(name=name, keys=[key]) for name, key in tenants.items()])


def test_without_a_file_nobody_needs_a_key() -> None:
    access = Access()
    assert access.is_open
    assert access.tenant_of(None) is ANONYMOUS
    assert access.tenant_of("anything") is ANONYMOUS


def test_a_key_leads_to_its_tenant_with_all_its_limits(path: Path) -> None:
    key, record = new_key()
    other, other_record = new_key()
    limits = {"weight": 2.5, "max_requests": 3, "max_bytes": 4, "max_requests_per_s": 0.5}
    first = TenantRecord(name="one", models=["a", "b"], keys=[record], **limits)
    write_tenants(path, [first, TenantRecord(name="two", keys=[other_record])])
    access = Access(str(path))
    assert not access.is_open
    tenant = access.tenant_of(key)
    assert {name: getattr(tenant, name) for name in limits} == limits
    assert (tenant.name, tenant.models) == ("one", frozenset({"a", "b"}))
    assert access.tenant_of(other).name == "two"
    assert access.tenant_of(other).models is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key: None,
        lambda key: "",
        lambda key: key[:-1],
        lambda key: key + "A",
        lambda key: key.upper(),
        lambda key: key[::-1],
        lambda key: f"dyk_{'0' * 12}_{key.rpartition('_')[2]}",
        lambda key: key * 1000,
        lambda key: "dyk_é_\ud800",
    ],
)
def test_any_other_key_is_refused_and_never_repeated(path: Path, spoil: Callable[[str], str | None]) -> None:
    key, record = new_key()
    write(path, one=record)
    access = Access(str(path))
    assert access.tenant_of(key).name == "one"
    wrong = spoil(key)
    with pytest.raises(AuthenticationError) as caught:
        access.tenant_of(wrong)
    assert record.id not in str(caught.value)
    assert not wrong or wrong not in str(caught.value)


def test_a_wrong_key_and_an_unknown_one_are_both_hashed_and_compared(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, record = new_key()
    write(path, one=record)
    access = Access(str(path))
    compared: list[tuple[str, str]] = []
    true_compare = hmac.compare_digest

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return true_compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    unknown, _ = new_key()
    for wrong in (key[:-2] + "xx", unknown):
        with pytest.raises(AuthenticationError):
            access.tenant_of(wrong)
    assert [one for one, _ in compared] == [digest(key[:-2] + "xx"), digest(unknown)]
    assert {len(other) for _, other in compared} == {64}


def test_a_key_expires(path: Path) -> None:
    key, record = new_key()
    write(path, one=msgspec.structs.replace(record, expires=datetime.fromtimestamp(NOON_S, UTC)))
    now = ManualClock()
    now.now_s = NOON_S - 1
    access = Access(str(path), now_s=now)
    assert access.tenant_of(key).name == "one"
    now.now_s = NOON_S
    with pytest.raises(AuthenticationError, match=f"API key {id_of(key)} has expired"):
        access.tenant_of(key)


def test_new_and_revoked_keys_take_effect_within_a_second(path: Path) -> None:
    clock = ManualClock()
    (key, record), (other, other_record) = new_key(), new_key()
    write(path, one=record)
    access = Access(str(path), clock)
    write(path, two=other_record)
    clock.now_s += 0.9
    assert access.tenant_of(key).name == "one"
    clock.now_s += 0.1
    assert access.tenant_of(other).name == "two"
    with pytest.raises(AuthenticationError):
        access.tenant_of(key)


@pytest.mark.parametrize("breakage", [lambda path: path.write_text("[[tenant]\n"), lambda path: path.unlink()])
def test_a_broken_file_keeps_the_old_keys_and_says_so_once(path: Path, breakage: Callable[[Path], object]) -> None:
    clock = ManualClock()
    (key, record), (other, other_record) = new_key(), new_key()
    write(path, one=record)
    access = Access(str(path), clock)
    breakage(path)
    with capture_logs() as logs:
        for _ in range(5):
            clock.now_s += 1
            assert access.tenant_of(key).name == "one"
    assert [one["event"] for one in logs] == ["keys_file_broken"]
    write(path, two=other_record)
    clock.now_s += 1
    assert access.tenant_of(other).name == "two"


@pytest.mark.parametrize("content", [None, "[[tenant]]\nname = 1\n", "\x00"])
def test_a_server_with_a_broken_file_does_not_start(path: Path, content: str | None) -> None:
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"keys file .*keys\.toml: "):
        Access(str(path))


def test_a_warning_names_a_file_that_others_may_read_or_write(path: Path) -> None:
    _, record = new_key()
    write(path, one=record)
    assert path.stat().st_mode & 0o777 == 0o600
    with capture_logs() as logs:
        Access(str(path))
        assert logs == []
        for mode in (0o644, 0o602):
            path.chmod(mode)
            Access(str(path))
    assert [one["event"] for one in logs] == ["keys_file_exposed"] * 2


def test_the_file_holds_hashes_only_and_comes_back_as_it_was_written(path: Path) -> None:
    key, record = new_key()
    record = msgspec.structs.replace(record, note='a "note"\\ \x7f\n[[tenant]] ü', expires=datetime.fromtimestamp(NOON_S, UTC))
    tenants = [
        TenantRecord(name="one", models=['"', "ü"], weight=0.1, keys=[record]),
        TenantRecord(name="two", models=[], max_requests=1),
    ]
    write_tenants(path, tenants)
    assert read_tenants(path) == tenants
    text = path.read_text()
    assert key not in text
    assert key.split("_", 2)[2] not in text
    assert hashlib.sha256(key.encode()).hexdigest() in text
    assert os.listdir(path.parent) == ["keys.toml"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[[tenant]]\nname = ""', "name"),
        ('[[tenant]]\nname = "a"\nweight = 0', "weight"),
        ('[[tenant]]\nname = "a"\nmax_request = 1', "max_request"),
        ('[[tenant]]\nname = "a"\nmax_requests = 0', "max_requests"),
        ('[[tenant]]\nname = "a"\n[[tenant]]\nname = "a"', "tenant 'a' appears more than once"),
        (f'[[tenant]]\nname = "a"\nkeys = [{{id = "{"0" * 12}", sha256 = "secret"}}]', "sha256"),
        (
            "\n".join(f'[[tenant]]\nname = "{name}"\nkeys = [{{id="{"0" * 12}",sha256="{"0" * 64}"}}]' for name in "ab"),
            "key '0+' appears more than once",
        ),
    ],
)
def test_errors_name_what_is_wrong_in_the_file(path: Path, text: str, complaint: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        read_tenants(path)
    assert "secret" not in str(caught.value)
