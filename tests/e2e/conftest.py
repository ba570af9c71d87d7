"""Two servers for all tests of a module, since a start takes seconds: one on Ray, one in its own process. Each is stopped as a
user would stop it, and must leave nothing."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.testing import ServerProcess
from tests.leaks import no_leaks
from tests.server_process import serving, target

TARGETS = [
    target("arithmetic", "quadruple"),
    target("arithmetic", "double_until_large"),
    target("tensors", "echo"),
    target("faulty", "pick"),
    target("streaming", "count_up"),
    target("slow", "gated"),
    target("large", "chain"),
    target("memory", "touched"),
]
ON_RAY_ONLY = [
    target("slow", "hanging"),
    target("replicas", "who"),
    target("replicas", "who_alone"),
    target("with_ray", "seen_from_ray"),
]


@dataclass(frozen=True)
class Tenants:
    """The file of a server's tenants, and their keys: one may use every model, the other `quadruple` alone."""

    file: Path
    key: str
    key_of_one_model: str


@pytest.fixture(scope="module")
def leaves_nothing() -> Iterator[None]:
    """Checks that a module's servers leave nothing. Checked one by one, new replicas of one would count against the other."""
    with no_leaks():
        yield


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Tenants:
    """Makes tenants for both servers."""
    file = tmp_path_factory.mktemp("tenants") / "tenants.toml"
    key, record = new_key()
    key_of_one_model, record_of_one_model = new_key()
    one_model = TenantRecord(name="one-model", models=["quadruple"], keys=[record_of_one_model])
    write_tenants(file, [TenantRecord(name="all-models", keys=[record]), one_model])
    return Tenants(file, key, key_of_one_model)


@contextmanager
def _stopping_well(targets: Sequence[str], tenants: Tenants, *, in_process: bool) -> Iterator[ServerProcess]:
    arguments = [*targets, "--allow-client-shm", "--keys-file", str(tenants.file)]
    with serving(arguments, in_process=in_process) as found:
        yield found
        seconds = found.stop(is_from_terminal=True)
        print(f"\nstopped after {seconds:.1f} s")
        assert found.process.returncode == 0, found.output
        assert not any(key in found.output for key in (tenants.key, tenants.key_of_one_model))
        assert found.leftovers() == []


@pytest.fixture(scope="module")
def ray_server(leaves_nothing: None, tenants: Tenants) -> Iterator[ServerProcess]:
    """Serves `TARGETS` and `ON_RAY_ONLY` on Ray. Its shutdown is tested too."""
    with _stopping_well([*TARGETS, *ON_RAY_ONLY], tenants, in_process=False) as found:
        yield found


@pytest.fixture(scope="module")
def cell(leaves_nothing: None, tenants: Tenants) -> Iterator[ServerProcess]:
    """Serves `TARGETS` without Ray. Its shutdown is tested too."""
    with _stopping_well(TARGETS, tenants, in_process=True) as found:
        yield found
