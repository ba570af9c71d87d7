"""The Open Inference Protocol (version 2) and what DyOrc adds to it, as server and clients share it. Nothing here does I/O.

Names: `headers`, `media_types`, `parameters`, `routes`, and `calls` for gRPC, whose messages are in ``inference.proto``.
Layouts: `frames`, `raw`. Records: `metadata`, `jobs`, `refusals`. A client's side of an inference: `requests`, `answers`.
Datatypes are `dyorc.core.tensor.DType`, because what stands below the protocol names them, too.
"""
