"""The Python client of a DyOrc server: NumPy in, NumPy out, over HTTP. With the server it shares arrays and errors."""

from dyorc.client.answers import Answer
from dyorc.client.asynchronous import AsyncClient, AsyncJob
from dyorc.client.blocking import Client, Job
from dyorc.client.job_records import JobRecord, JobState
from dyorc.client.metadata import ModelMetadata, TensorMetadata
from dyorc.client.retries import Retries

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
