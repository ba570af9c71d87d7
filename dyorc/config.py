"""Every setting of DyOrc, with its unit and default.

Each component takes its own section, frozen. `Settings` composes them and is the only reader of the environment:
``DYORC_GATEWAY__PORT=8000``. It is read once, by the command line, and passed down.
"""

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class SpeculationConfig(_Section):
    """When the engine guesses how a decision will turn out, and what that may cost."""

    enabled: bool = True
    max_depth: int = Field(default=4, ge=1)
    """How many open decisions one path of a workflow may have guessed."""
    min_probability: float = Field(default=0.1, ge=0, le=1)
    """Work that is less likely to be needed is not made ready."""
    max_wasted_ratio: float = Field(default=0.3, ge=0, lt=1)
    """The part of the device time that may go to wrong guesses, for each workflow and in all."""
    margin: float = Field(default=1.0, ge=0)
    """How many times its expected cost to others a guess must be expected to save."""
    burst_s: float = Field(default=2.0, ge=0)
    """Device time in seconds that may be wasted above that ratio, for a moment."""


class EngineConfig(_Section):
    """Limits of the engine."""

    max_requests: int = Field(default=4096, ge=1)
    """Requests in flight; one more is turned away."""
    max_calls_per_request: int = Field(default=10_000, ge=1)
    """Calls of one request, over all its tasks; one more fails it."""
    max_in_flight_batches: int = Field(default=2, ge=1)
    """Batches that one replica may hold: one that runs, the rest travelling."""
    max_attempts: int = Field(default=3, ge=1)
    """How often a call may be on a replica that dies before it fails."""
    max_load_failures: int = Field(default=3, ge=1)
    """Failed loads in a row after which a program's waiting calls fail with the program's error."""
    request_timeout_s: float = Field(default=300.0, gt=0)
    """Time that a request may take if it names none."""
    max_determinism_checks: int = Field(default=3, ge=0)
    """How many of each workflow's first requests are run again against their journal."""
    prefetch_ratio: float = Field(default=1.0, ge=0, le=1)
    """How much of a batch's expected time must have passed before the next may travel to the same replica."""
    hold: bool = True
    """Whether a batch may wait for a call whose inputs are nearly there."""
    speculation: SpeculationConfig = SpeculationConfig()


class LinkConfig(_Section):
    """The ZeroMQ link between the orchestrator and its replicas."""

    heartbeat_interval_s: float = Field(default=1.0, gt=0)
    heartbeat_timeout_s: float = Field(default=3.0, gt=0)
    """Silence after which a peer counts as lost. A peer whose connection closes is noticed at once."""
    announce_interval_s: float = Field(default=1.0, gt=0)
    """How often an idle replica says again who it is, so that a new orchestrator finds it."""


class DeploymentConfig(_Section):
    """How Ray Serve keeps the replicas."""

    health_check_period_s: float = Field(default=1.0, gt=0)
    health_check_timeout_s: float = Field(default=10.0, gt=0)
    graceful_shutdown_timeout_s: float = Field(default=3.0, ge=0)
    object_store_bytes: int = Field(default=80 * 2**20, ge=78_643_200)
    """Ray's object store; DyOrc sends no tensor through it."""


class GatewayConfig(_Section):
    """The HTTP gateway."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """0 takes a free one."""
    max_request_bytes: int = Field(default=64 * 2**20, ge=1)
    """Largest body of a request."""
    drain_timeout_s: float = Field(default=10.0, ge=0)
    """How long requests in flight may still take when the server stops."""


class Settings(BaseSettings):
    """All sections."""

    model_config = SettingsConfigDict(env_prefix="DYORC_", env_nested_delimiter="__", frozen=True)

    engine: EngineConfig = EngineConfig()
    link: LinkConfig = LinkConfig()
    deployment: DeploymentConfig = DeploymentConfig()
    gateway: GatewayConfig = GatewayConfig()
