"""The Open Inference Protocol (version 2) and what DyOrc adds to it, shared by server and clients. Nothing here does I/O.

Names: `api_paths` (HTTP, and gRPC, whose messages are in ``inference.proto``), `header_names`, `parameter_names`, `media_types`.
Layout of tensors: `raw`. Records: `metadata`, `job_records`, `deployment_changes`, `wire_errors`.
A client's side of an inference: `inference_request`, `inference_answer`.
Datatypes are `dyorc.core.tensor.DType`, since packages below this one use them, too.
"""
