"""Users' modules that change settings of the whole process, in a server whose programs run in the same process."""

import json
import signal
from pathlib import Path

import httpx

from dyorc.testing import serving
from tests.deadlines import TIMEOUT_S

_TARGET = Path(__file__).parents[1] / "workflows/meddling.py"


def test_what_users_modules_change_holds_for_their_programs_and_not_for_the_server() -> None:
    environment = {"DYORC_TELEMETRY__LOGS__FORMAT": "json"}
    with serving(f"{_TARGET}:meddled", "-v", in_process=True, environment=environment) as server:
        with httpx.Client(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as client:
            for number in (1.0, 2.0):
                inputs = [{"name": "x", "shape": [2], "datatype": "FP32", "data": [number, 3.0]}]
                answer = client.post("/v2/models/meddled/infer", json={"inputs": inputs})
                assert answer.status_code == 200, answer.text
                assert answer.json()["outputs"][0]["data"] == [2 * number, 6.0]
        server.stop(signal.SIGTERM)
        assert server.process.returncode == 0
        lines = [json.loads(line) for line in server.lines if line.startswith("{")]
        ours = [line for line in lines if line.get("logger", "").startswith("dyorc")]
        assert {"replica_joined", "signal_handler_put_back"} <= {line["event"] for line in ours}
        assert all("time" in line and "level" in line for line in ours)
        assert {line["signal"] for line in ours if "signal" in line} == {"SIGINT", "SIGTERM"}
        assert server.lines[-1] == "Stopped."
