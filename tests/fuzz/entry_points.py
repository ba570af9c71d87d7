"""All places where bytes come in, by name."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.fuzz import (
    cluster_messages,
    door_bodies,
    grpc_requests,
    http_requests,
    input_files,
    link_messages,
    request_bodies,
    stored_state,
    text_files,
)
from tests.fuzz.contract import FuzzTarget

_IN_MEMORY: Mapping[str, Callable[[], FuzzTarget]] = {
    "http_requests": http_requests.build,
    "inference_bodies": request_bodies.build_inference,
    "generate_bodies": request_bodies.build_generate,
    "run_bodies": request_bodies.build_run,
    "openai_bodies": door_bodies.build_openai,
    "mcp_calls": door_bodies.build_mcp,
    "grpc_requests": grpc_requests.build,
    "unix_streams": link_messages.build_stream,
    "messages_of_gateways": cluster_messages.build_from_gateways,
    "messages_of_orchestrators": cluster_messages.build_from_orchestrators,
    "environment": text_files.build_environment,
    "deployment_records": stored_state.build_deployments,
    "job_records": stored_state.build_jobs,
    "leader_records": stored_state.build_leaders,
}
_WITH_FILES: Mapping[str, Callable[[Path], FuzzTarget]] = {
    "link_messages": link_messages.build,
    "history_files": stored_state.build_histories,
    "arena_files": stored_state.build_arenas,
    "plan_files": text_files.build_plans,
    "plan_heads": text_files.build_plan_heads,
    "settings_files": text_files.build_settings,
    "rules_files": text_files.build_rules,
    "keys_files": text_files.build_keys,
    "cluster_keys": text_files.build_cluster_keys,
    "trace_files": text_files.build_traces,
    "cluster_files": text_files.build_clusters,
    "npy_files": input_files.build_npy,
    "npz_files": input_files.build_npz,
    "json_files": input_files.build_json,
}
NAMES = (*_IN_MEMORY, *_WITH_FILES)
CORPUS = Path(__file__).parent / "corpus"
"""A folder for each target, with inputs that were once read wrongly or that reach code which others do not."""


def build_target(name: str, folder: Path) -> FuzzTarget:
    """Returns a target. Close it after use.

    Args:
        folder: An empty folder for its files.
    """
    return _IN_MEMORY[name]() if name in _IN_MEMORY else _WITH_FILES[name](folder)


def kept_inputs(name: str) -> list[Path]:
    """Returns the inputs that are kept for a target."""
    return sorted((CORPUS / name).glob("*"))
