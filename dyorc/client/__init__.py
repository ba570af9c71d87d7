"""The Python client of a DyOrc server: NumPy in, NumPy out, over HTTP. It shares arrays and errors with the server."""

from dyorc.client.asynchronous import AsyncClient, AsyncJob
from dyorc.client.blocking import Client, Job
from dyorc.client.retries import Retries
from dyorc.protocol.inference_answer import Answer
from dyorc.protocol.job_records import JobRecord, JobState
from dyorc.protocol.metadata import ModelMetadata, TensorMetadata

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncJob",
    "Client",
    "Job",
    "JobRecord",
    "JobState",
    "ModelMetadata",
    "Retries",
    "TensorMetadata",
]
