"""Keys, tenants and their limits over HTTP, and what a server without them refuses to do."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest

from dyorc.config import GatewayConfig
from dyorc.errors import ConfigurationError
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.gateway.tls import refuse_open_address
from dyorc.store.sqlite import SqliteStore
from tests import oip
from tests.certificates import Authority
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.stack import Stack, running
from tests.integration.web import request, web
from tests.workflows.arithmetic import double_until_large, quadruple

QUADRUPLE = "/v2/models/quadruple"
BODY = oip.json_body({"x": np.ones(4, np.float32)})


@dataclass
class Served:
    """A server with tenants."""

    stack: Stack
    file: Path
    tenants: dict[str, TenantRecord]
    keys: dict[str, str]

    async def get(self, path: str, tenant: str) -> httpx.Response:
        """Sends a GET with a tenant's key."""
        return await self.stack.client.get(path, headers={"X-API-Key": self.keys[tenant]})

    async def infer(self, tenant: str, model: str = "quadruple") -> httpx.Response:
        """Sends a request with a tenant's key."""
        headers = {**BODY.headers, "Authorization": f"Bearer {self.keys[tenant]}"}
        return await self.stack.client.post(f"/v2/models/{model}/infer", content=BODY.content, headers=headers)


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Serves a tenant that may do all, one that may use one model only, and two with limits."""
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    limits: dict[str, dict[str, object]] = {
        "all": {},
        "one": {"models": ["quadruple"]},
        "small": {"max_bytes": 50},
        "slow": {"max_requests_per_s": 0.01},
        "revoked": {},
        "patient": {},
    }
    highest = {"patient": 3}
    keys, tenants = {}, {}
    for name, given in limits.items():
        keys[name], record = new_key()
        record = msgspec.structs.replace(record, highest_priority=highest.get(name))
        tenants[name] = TenantRecord(name=name, keys=[record], **given)  # type: ignore[arg-type]
    write_tenants(file, list(tenants.values()))
    gateway = GatewayConfig(port=0, drain_timeout_s=1, keys_file=str(file))
    store = SqliteStore(file.with_name("jobs.sqlite"))
    async with running([quadruple, double_until_large], gateway=gateway, store=store) as stack:
        yield Served(stack, file, tenants, keys)


EVERY_ROUTE = [
    ("GET", "/v2"),
    ("GET", "/v2/models"),
    ("GET", QUADRUPLE),
    ("GET", f"{QUADRUPLE}/ready"),
    ("POST", f"{QUADRUPLE}/infer"),
    ("POST", "/v2/models/unknown/infer"),
    ("GET", "/v2/systemsharedmemory/status"),
    ("GET", "/status"),
    ("GET", "/scaling"),
    ("POST", "/scaling/double"),
    ("GET", "/"),
    ("GET", "/v2/health"),
    ("GET", "/nothing"),
]


@pytest.mark.parametrize(("method", "path"), EVERY_ROUTE)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic wrong"},
        {"Authorization": "Bearer"},
        {"X-API-Key": ""},
        {"X-API-Key": "dyk_0_ü".encode().decode("latin-1")},
    ],
)
async def test_every_route_needs_a_key(served: Served, method: str, path: str, headers: dict[str, str]) -> None:
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    answer = await served.stack.client.request(method, path, headers=encoded)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["code"] == "unauthenticated"
    assert oip.error_text(answer)


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/health"])
async def test_health_needs_no_key(served: Served, path: str) -> None:
    assert (await served.stack.client.get(path)).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
async def test_a_browser_gets_the_documentation_and_all_that_it_loads_without_a_key(
    served: Served, headers: dict[str, str]
) -> None:
    """Only then can it show where to enter a key. Links are followed as a browser does."""
    client = served.stack.client
    page = await client.get("/docs", headers=headers)
    assert page.status_code == 200
    links = [link for link in re.findall(r'(?:href|src)="([^"]+)"', page.text) if not link.startswith("data:")]
    assert len(links) == 3
    files = {link: await client.get(page.url.join(link), headers=headers) for link in links}
    assert [file.status_code for file in files.values()] == [200, 200, 200]
    (start,) = (file for link, file in files.items() if link.endswith("start.js"))
    (described,) = re.findall(r'url: "([^"]+)"', start.text)
    found = await client.get(page.url.join(described), headers=headers)
    assert found.status_code == 200
    assert found.json()["components"]["securitySchemes"].keys() == {"bearer", "api_key"}
    for name in served.stack.service.catalog.models:
        assert name not in found.text


async def test_the_root_names_the_models_that_a_tenant_may_use(served: Served) -> None:
    found = (await served.get("/", "all")).json()
    assert found == {"models": ["double", "double_until_large", "quadruple"], "docs": "/docs", "status": "/status"}
    for path in (found["docs"], found["status"]):
        assert (await served.get(path, "all")).status_code == 200
    assert (await served.get("/", "one")).json()["models"] == ["quadruple"]


async def test_a_slash_at_the_end_changes_nothing(served: Served) -> None:
    for path in (QUADRUPLE, f"{QUADRUPLE}/ready", "/v2", "/v2/models", "/status"):
        for tenant in ("all", "one"):
            plain, slashed = await served.get(path, tenant), await served.get(f"{path}/", tenant)
            assert (slashed.status_code, len(slashed.content) > 0) == (plain.status_code, len(plain.content) > 0), path
    headers = {**BODY.headers, "X-API-Key": served.keys["all"]}
    answer = await served.stack.client.post(f"{QUADRUPLE}/infer/", content=BODY.content, headers=headers)
    assert oip.read(answer).outputs.popitem()[1].tolist() == [4, 4, 4, 4]
    assert (await served.stack.client.get("/v2/models/")).status_code == 401
    page = await served.stack.client.get("/docs/", follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/docs")  # whose links are relative


async def test_a_key_is_taken_in_both_headers(served: Served) -> None:
    assert (await served.get(QUADRUPLE, "all")).status_code == 200
    for scheme in ("Bearer", "bearer"):
        headers = {"Authorization": f"{scheme} {served.keys['all']}"}
        assert (await served.stack.client.get(QUADRUPLE, headers=headers)).status_code == 200
    assert oip.read(await served.infer("all")).outputs.popitem()[1].tolist() == [4, 4, 4, 4]


async def test_a_tenant_gets_only_its_models_and_no_hint_of_others(served: Served) -> None:
    assert (await served.infer("one")).status_code == 200
    assert (await served.get(f"{QUADRUPLE}/ready", "one")).status_code == 200
    assert (await served.get("/v2", "one")).status_code == 200
    assert (await served.get("/v2/models", "one")).json() == {"models": ["quadruple"]}
    assert len((await served.get("/v2/models", "all")).json()["models"]) == 3
    denied = [await served.infer("one", "double_until_large"), await served.infer("one", "quadruple%2Fx")]
    for path in (
        "/v2/models/double_until_large",
        "/v2/models/double_until_large/ready",
        "/v2/models/double_until_large/versions/1",
        "/v2/models/double%5Funtil_large",
        "/v2/models//double_until_large",
        "/status",
        "/v2/systemsharedmemory/status",
    ):
        denied.append(await served.get(path, "one"))
    for answer in denied:
        assert answer.status_code == 403 or answer.status_code == 404, answer.url
        assert "double_until_large" not in answer.text.replace("may not use model 'double_until_large'", "")
    assert [answer.status_code for answer in denied[2:]] == [403] * 7
    assert denied[2].json()["code"] == "permission_denied"


async def test_limits_of_a_tenant_are_its_own(served: Served) -> None:
    assert (await served.infer("slow")).status_code == 200
    too_fast = await served.infer("slow")
    assert (too_fast.status_code, too_fast.json()["code"], too_fast.json()["retryable"]) == (429, "tenant_limit", True)
    assert 90 <= int(too_fast.headers["retry-after"]) <= 100
    assert (await served.infer("small")).status_code == 429
    assert (await served.infer("all")).status_code == 200


@pytest.mark.parametrize("path", [f"{QUADRUPLE}/infer", "/v1/jobs"])
async def test_a_key_may_ask_for_priorities_up_to_its_own(served: Served, path: str) -> None:
    async def ask(tenant: str, priority: int) -> httpx.Response:
        tensor = {"name": "x", "shape": [4], "datatype": "FP32", "data": [1.0] * 4}
        body = {"model_name": "quadruple"} if path == "/v1/jobs" else {}
        body |= {"parameters": {"priority": priority}, "inputs": [tensor]}
        return await served.stack.client.post(path, json=body, headers={"X-API-Key": served.keys[tenant]})

    for tenant, priority in (("all", 1), ("patient", 0), ("patient", 3), ("patient", 4)):
        assert (await ask(tenant, priority)).status_code in (200, 202), (tenant, priority)
    refused = await ask("patient", 2)
    assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
    assert "priority 2 is too high for this key of tenant 'patient': it may ask for 3 and larger numbers" in refused.text


async def test_a_body_of_unknown_length_is_counted_as_it_comes(served: Served) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(BODY.content), 10):
            yield BODY.content[at : at + 10]

    for tenant, status in (("all", 200), ("small", 429)):
        headers = {**BODY.headers, "X-API-Key": served.keys[tenant]}
        answer = await served.stack.client.post(f"{QUADRUPLE}/infer", content=pieces(), headers=headers)
        assert answer.status_code == status


async def test_a_request_is_refused_before_its_body_is_sent(served: Served) -> None:
    place = httpx.URL(served.stack.client.base_url)
    for key, status in (("wrong", b"401"), (served.keys["small"], b"429")):
        reader, writer = await asyncio.open_connection(place.host, place.port)
        head = request(f"{QUADRUPLE}/infer", bytes(10**6), f"X-API-Key: {key}")[: -(10**6)]
        writer.write(head)
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), TIMEOUT_S)).split()[1] == status
        writer.close()
        await writer.wait_closed()


async def test_a_key_removed_from_the_file_stops_working_without_a_restart(served: Served) -> None:
    assert (await served.infer("revoked")).status_code == 200
    write_tenants(served.file, [one for name, one in served.tenants.items() if name != "revoked"])
    async with asyncio.timeout(TIMEOUT_S):
        while (await served.infer("revoked")).status_code != 401:
            pass
    assert (await served.infer("all")).status_code == 200
    write_tenants(served.file, list(served.tenants.values()))


async def test_the_room_of_all_requests_is_given_back(served: Served) -> None:
    admission = served.stack.service.admission
    await wait_until_async(lambda: (admission.num_requests, admission.num_bytes) == (0, 0), "nothing is in flight")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", "localhost.example.org", "127.0.0.1.example.org"])
def test_a_server_without_keys_stays_on_loopback(host: str) -> None:
    # A name that no resolver knows is refused as such; whether there is a resolver depends on the machine.
    with pytest.raises(
        ConfigurationError, match=r"keys_file.*tls_client_roots_file.*allow_open|a name of this machine"
    ) as caught:
        refuse_open_address(GatewayConfig(host=host))
    assert repr(host) in str(caught.value)
    for ways_out in ({"keys_file": "keys"}, {"tls_client_roots_file": "roots"}, {"allow_open": True}):
        refuse_open_address(GatewayConfig(host=host, **ways_out))  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_is_open_to_its_users(host: str) -> None:
    refuse_open_address(GatewayConfig(host=host))


async def test_a_server_does_not_start_where_it_may_not_listen() -> None:
    with pytest.raises(ConfigurationError, match="not a loopback address"):
        async with web(host="0.0.0.0"):
            pass


async def test_httpx_is_served_over_tls_and_sees_a_renewed_certificate(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    certificate = old.sign("server")
    files = {"tls_certificate_file": str(certificate.certificate), "tls_key_file": str(certificate.key)}
    async with web(**files) as found:
        assert found.url.startswith("https://")

        async def is_served(authority: Authority) -> bool:
            context = ssl.create_default_context(cafile=str(authority.own.certificate))
            try:
                async with httpx.AsyncClient(verify=context, trust_env=False) as client:
                    return (await client.post(found.url, content=b"hello")).content == b"hello"
            except httpx.ConnectError:
                return False

        tls = found.server._tls  # pyright: ignore[reportPrivateUsage]
        assert tls is not None
        assert (await is_served(old), await is_served(new)) == (True, False)
        renewed = new.sign("server")
        certificate.certificate.write_bytes(renewed.certificate.read_bytes())
        tls.refresh()  # the key does not fit yet
        assert (await is_served(old), await is_served(new)) == (True, False)
        certificate.key.write_bytes(renewed.key.read_bytes())
        tls.refresh()
        assert (await is_served(old), await is_served(new)) == (False, True)


async def test_errors_name_unusable_files_for_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    first, second = authority.sign("first"), authority.sign("second")
    (tmp_path / "empty").write_text("")
    for settings, complaint in (
        ({"tls_certificate_file": "x"}, "needs both"),
        ({"tls_client_roots_file": "x"}, "needs both"),
        ({"tls_certificate_file": str(first.certificate), "tls_key_file": str(tmp_path / "none")}, "none: No such file"),
        ({"tls_certificate_file": str(first.certificate), "tls_key_file": str(second.key)}, "tls_key_file: "),
        (
            {
                "tls_certificate_file": str(first.certificate),
                "tls_key_file": str(first.key),
                "tls_client_roots_file": str(tmp_path / "empty"),
            },
            "tls_client_roots_file: ",
        ),
    ):
        with pytest.raises(ConfigurationError, match=complaint):
            async with web(**settings):
                pass


async def test_run_is_open_to_a_tenant_for_its_own_models_only(served: Served) -> None:
    headers = {"X-API-Key": served.keys["one"]}
    answer = await served.stack.client.post("/run/quadruple", json={"x": [1, 2, 3, 4]}, headers=headers)
    assert (answer.status_code, answer.json()) == (200, [4, 8, 12, 16])
    for path in ("/run/double_until_large", "/run/nobody"):
        assert (await served.stack.client.post(path, json={}, headers=headers)).status_code == 403


async def test_the_description_has_the_models_that_the_key_may_use(served: Served) -> None:
    paths = (await served.get("/openapi.json", "one")).json()["paths"]
    assert [path for path in paths if path.startswith("/run/")] == ["/run/quadruple"]
