"""The forms of the control routes' answers, for the description of the API."""

from typing import Any

from pydantic import BaseModel, Field


class Entrance(BaseModel):
    models: list[str]
    docs: str = Field(description="Path of the page that describes the API")
    status: str = Field(description="Path of the server's current state")


class ServerMetadata(BaseModel):
    name: str
    version: str
    extensions: list[str]


class Live(BaseModel):
    live: bool


class Ready(BaseModel):
    ready: bool


class ModelReady(BaseModel):
    name: str
    ready: bool


class ModelNames(BaseModel):
    models: list[str]


class TensorMetadata(BaseModel):
    name: str
    datatype: str
    shape: list[int] = Field(description="-1 means any size")


class ModelMetadata(BaseModel):
    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    properties: dict[str, str] = Field(
        description="`repeatable`: whether a request may be sent again though it may have run; `parameters`, if it has any: "
        "what it takes besides tensors, as a JSON list of names, types and defaults"
    )


class IndexEntry(BaseModel):
    name: str
    version: str
    state: str
    reason: str


class Duration(BaseModel):
    count: int
    ns: int


class InferenceDurations(BaseModel):
    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cache_hit: Duration
    cache_miss: Duration


class BatchDurations(BaseModel):
    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


class Statistics(BaseModel):
    name: str
    version: str
    last_inference: int = Field(description="Unix time in milliseconds")
    inference_count: int
    execution_count: int
    inference_stats: InferenceDurations
    response_stats: dict[str, Any]
    batch_stats: list[BatchDurations]
    memory_usage: list[dict[str, Any]]


class AllStatistics(BaseModel):
    model_stats: list[Statistics]


class TraceSettings(BaseModel):
    trace_level: list[str]
    trace_rate: str
    trace_count: str
    log_frequency: str
    trace_file: str
    trace_mode: str


class LogSettings(BaseModel):
    log_file: str
    log_info: bool
    log_warning: bool
    log_error: bool
    log_verbose_level: int
    log_format: str
    log_requests: str


class Region(BaseModel):
    name: str
    key: str
    offset: int
    byte_size: int


class CudaRegion(BaseModel):
    name: str
    device_id: int
    byte_size: int
