"""Keys that enter a server do not come out again, neither in its most verbose log nor in its answers."""

from pathlib import Path

import numpy as np

from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from tests import oip
from tests.server_process import client_of, serving, target


def test_keys_are_in_no_log_and_no_answer(tmp_path: Path) -> None:
    right, record = new_key()
    wrong, _ = new_key()
    file = tmp_path / "keys.toml"
    write_tenants(file, [TenantRecord(name="one", keys=[record])])
    body = oip.json_body({"x": np.ones(4, np.float32)})
    answers: list[str] = []
    statuses: set[int] = set()
    targets = [target("arithmetic", "quadruple"), target("faulty", "pick")]
    with serving(targets, in_process=True, DYORC_GATEWAY__KEYS_FILE=str(file)) as server:
        with client_of(server) as client:
            for key in (right, wrong):
                for headers in (
                    {"Authorization": f"Bearer {key}"},
                    {"Authorization": f"Basic {key}"},
                    {"Authorization": key},
                    {"X-API-Key": key},
                    {"X-API-Key": right, "Cookie": f"key={key}", "Inference-Header-Content-Length": key},
                    {"X-API-Key": right, "Content-Encoding": key},
                    {"X-API-Key": right, key: key},
                ):
                    for path in (
                        "/v2/models/quadruple/infer",
                        "/v2/models/pick/infer",
                        f"/v2/models/quadruple/infer?key={key}",
                        f"/v2/models/{key}/infer",
                        f"/{key}",
                    ):
                        answer = client.post(path, content=body.content, headers={**body.headers, **headers})
                        statuses.add(answer.status_code)
                        if key not in path and key not in (
                            headers.get("Content-Encoding"),
                            headers.get("Inference-Header-Content-Length"),
                        ):
                            answers.append(answer.text + str(answer.headers))
                file.write_text(f'broken = "{key}"')
                file.write_text(file.read_text())
        server.stop()
    assert {200, 401, 404} <= statuses
    for secret in (right, wrong):
        for part in (secret, secret.split("_", 2)[-1]):
            assert part not in server.output
            assert part not in "".join(answers)
    assert "Traceback" not in "".join(answers)
