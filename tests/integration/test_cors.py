"""Pages of named origins may call the server from browsers, and no others."""

from pathlib import Path

import httpx
import numpy as np
import pytest
from pydantic import ValidationError

from dyorc.config import GatewayConfig
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from tests import oip
from tests.integration.stack import running
from tests.workflows import arithmetic

HOME = "https://app.example.com"
INFER = "/v2/models/quadruple/infer"
BODY = oip.json_body({"x": np.array([1, 2, 3, 4], np.float32)})
ASK = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


def _config(*origins: str, **more: object) -> GatewayConfig:
    return GatewayConfig.model_validate({"port": 0, "drain_timeout_s": 1, "cors_origins": origins, **more})


def _cors(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


async def _answers(client: httpx.AsyncClient, origin: str) -> list[httpx.Response]:
    """Returns an answer of the direct path, one of the application's inference routes, one of FastAPI's, and errors of each."""
    headers = {"Origin": origin}
    infer = {**headers, **BODY.headers}
    return [
        await client.post(INFER, content=BODY.content, headers=infer),
        await client.post(INFER, content=BODY.content, headers=infer),  # its head is known by now
        await client.post("/v2/models/quadruple/generate", json={"x": [1, 2, 3, 4]}, headers=headers),
        await client.get("/v2/models", headers=headers),
        await client.post(INFER, content=b"{", headers=headers),
        await client.get("/v2/nothing", headers=headers),
    ]


async def test_by_default_no_page_may_call() -> None:
    async with running([arithmetic.quadruple]) as stack:
        answers = await _answers(stack.client, HOME)
        answers.append(await stack.client.options(INFER, headers={"Origin": HOME, **ASK}))
        assert not any(_cors(answer) or "origin" in answer.headers.get("vary", "") for answer in answers)


@pytest.mark.parametrize("is_with_credentials", [False, True])
async def test_a_named_origin_may_read_every_answer(is_with_credentials: bool) -> None:
    config = _config("http://localhost:5173", HOME, cors_credentials=is_with_credentials)
    async with running([arithmetic.quadruple], gateway=config) as stack:
        answers = await _answers(stack.client, HOME)
        assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 400, 404]
        for answer in answers:
            found = _cors(answer)
            assert found["access-control-allow-origin"] == HOME
            assert "x-request-id" in found["access-control-expose-headers"]
            assert ("access-control-allow-credentials" in found) == is_with_credentials
            assert "origin" in answer.headers["vary"]
        for answer in await _answers(stack.client, "https://elsewhere.example.com"):
            assert not _cors(answer)
            assert "origin" in answer.headers["vary"]


async def test_with_a_star_every_origin_may() -> None:
    async with running([arithmetic.quadruple], gateway=_config("*")) as stack:
        for answer in await _answers(stack.client, HOME):
            assert _cors(answer)["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", [INFER, "/v2/models", "/v2/jobs", "/v2/models/quadruple/generate_stream"])
async def test_a_preflight_needs_no_key(path: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    write_tenants(keys, [TenantRecord(name="search", keys=[new_key()[1]])])
    async with running([arithmetic.quadruple], gateway=_config(HOME, keys_file=str(keys))) as stack:
        asked = await stack.client.get("/v2/models", headers={"Origin": HOME})
        assert (asked.status_code, _cors(asked)["access-control-allow-origin"]) == (401, HOME)
        answer = await stack.client.options(path, headers={"Origin": HOME, **ASK})
        found = _cors(answer)
        assert (answer.status_code, answer.content) == (204, b"")
        assert found["access-control-allow-origin"] == HOME
        assert "POST" in found["access-control-allow-methods"]
        for name in ("authorization", "x-api-key", "content-type", "inference-header-content-length", "request-timeout"):
            assert name in found["access-control-allow-headers"]
        refused = await stack.client.options(path, headers={"Origin": "https://elsewhere.example.com", **ASK})
        assert not _cors(refused)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"cors_origins": ["*"], "cors_credentials": True}, "cors_credentials needs the origins by name"),
        ({"cors_origins": ["app.example.com"]}, "cors_origins"),
        ({"cors_origins": ["https://app.example.com/"]}, "cors_origins"),
        ({"cors_origins": ["null"]}, "cors_origins"),
    ],
)
def test_settings_that_browsers_would_not_understand_are_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        GatewayConfig.model_validate(settings)
