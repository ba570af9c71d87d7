"""Paths of the HTTP API, and of the calls of the gRPC API, whose messages are in ``inference.proto``."""

from urllib.parse import quote

from dyorc.errors import InvalidInputError

GRPC_SERVICE = "inference.GRPCInferenceService"

SERVER = "/v2"
HEALTH = f"{SERVER}/health"
LIVE = f"{HEALTH}/live"
READY = f"{HEALTH}/ready"
ALSO_READY = "/health"
"""The same, where clients of OpenAI's API that also know vLLM look for it."""
MODELS = f"{SERVER}/models"
STATISTICS = f"{MODELS}/stats"
REPOSITORY = f"{SERVER}/repository"
REPOSITORY_INDEX = f"{REPOSITORY}/index"
JOBS = "/v1/jobs"
DEPLOYMENTS = "/deployments"
STATUS = "/status"
SCALING = "/scaling"
UI = "/ui"
LIVE_NOW = "/live"
LIVE_EVENTS = "/events"
REQUESTS = "/requests"
TRACE = "/trace"
TAIL = "/tail"
LIVE_HISTORY = "/history"
LIVE_GRAPH = "/graph"
METRICS = "/metrics"
RUN_MODEL = "/run"
MCP = "/mcp"

OPENAI_ROOT = "/v1/"
OPENAI_MODELS = "/v1/models"
CHAT_COMPLETIONS = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
RERANKINGS = "/v1/rerank"
_OPENAI_PATHS = frozenset({OPENAI_MODELS, CHAT_COMPLETIONS, COMPLETIONS, RESPONSES, EMBEDDINGS, RERANKINGS})

INFER = "infer"
INFER_STREAM = "infer_stream"
GENERATE = "generate"
GENERATE_STREAM = "generate_stream"
RUN = "run"
"""The ways to run a model."""

MODEL_READY = "ready"
MODEL_CONFIG = "config"
MODEL_STATISTICS = "stats"
"""The questions about a model."""


def _quoted(name: str, kind: str) -> str:
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- people pass the workflow itself, or a number
        raise InvalidInputError(f"the {kind} is {name!r}, expected its name, a text")
    return quote(name, safe="")


def request_path(request_id: str) -> str:
    """Returns the path of a request's record."""
    return f"{REQUESTS}/{quote(request_id, safe='')}"


def unload_path(model: str) -> str:
    """Returns the path that takes a model out of service."""
    return f"{REPOSITORY}/models/{_quoted(model, 'model')}/unload"


def rollback_path(model: str) -> str:
    """Returns the path that undoes the last change of a model's versions."""
    return f"{DEPLOYMENTS}/{_quoted(model, 'model')}/rollback"


def model_path(model: str, version: str | None, action: str = "") -> str:
    """Returns the path of a model's route, such as its ``infer``."""
    if not model:
        raise InvalidInputError("the model's name is empty")
    path = f"{MODELS}/{_quoted(model, 'model')}"
    if version is not None:
        path += f"/versions/{_quoted(version, 'version')}"
    return f"{path}/{action}" if action else path


def run_path(model: str, version: str | None = None) -> str:
    """Returns the path that runs a model on plain values."""
    path = f"{RUN_MODEL}/{_quoted(model, 'model')}"
    return path if version is None else f"{path}/versions/{_quoted(version, 'version')}"


def is_openai(path: str) -> bool:
    """Returns whether a path is a route of OpenAI's API."""
    return path in _OPENAI_PATHS or path.startswith(f"{OPENAI_MODELS}/")


def is_below_openai(path: str) -> bool:
    """Returns whether a client of OpenAI's API may ask for a path, be it a route or not: jobs alone are another API."""
    return path.startswith(OPENAI_ROOT) and path != JOBS and not path.startswith(f"{JOBS}/")


def grpc_path(call: str) -> str:
    """Returns the path of a gRPC call, such as ``ModelInfer``."""
    return f"/{GRPC_SERVICE}/{call}"
