"""What a gateway tells its orchestrator is told to each that follows."""

from pathlib import Path
from unittest import mock

from dyorc.config import LogsConfig
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.deadlines import wait_until_async
from tests.integration.remote.ends import Told, gateway
from tests.integration.remote.test_groups import leading
from tests.workflows import parted


async def test_settings_of_the_log_are_told_to_the_next_leader(tmp_path: Path) -> None:
    leaders, asked = Told(), LogsConfig(level="debug")
    with mock.patch.object(Orchestrator, "set_logs") as set_logs:
        async with gateway(leaders) as backend:
            backend.set_logs(asked)
            for fence in (1, 2):
                async with leading(leaders, [parted.squared], tmp_path, fence):
                    await wait_until_async(lambda fence=fence: set_logs.call_count == fence, "a leader knows the settings")
                await wait_until_async(lambda: not backend.is_connected, "it is away")
    assert [call.args for call in set_logs.call_args_list] == [(asked,), (asked,)]
