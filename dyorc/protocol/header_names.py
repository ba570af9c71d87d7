"""Headers with a meaning in the protocol or in DyOrc, in lower case: of HTTP, and of gRPC's metadata."""

import re
from typing import TypeAlias

Header: TypeAlias = tuple[bytes, bytes]
"""A header of HTTP: its name in lower case, and its value."""

USABLE_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
"""Matches any name that a header can have, in lower case: a token of RFC 9110."""

USABLE_KEY = re.compile(r"[!-~]+")
"""Matches any API key that a header can carry: visible ASCII characters."""

JSON_LENGTH = "inference-header-content-length"
"""Length of the JSON in a body, if raw tensors follow it."""

TIMEOUT = "request-timeout"
"""In seconds; after that, the client no longer waits."""

PRIORITY = "x-priority"
"""Of a request that names none in its body: 1 is the highest, 0 means none."""

AUTHORIZATION = "authorization"
API_KEY = "x-api-key"
"""The client's key: ``Bearer KEY`` in the first, or the key alone in the second."""

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
"""The caller's span, by W3C's Trace Context."""

REQUEST_ID = "x-request-id"
"""The id of a request, which its client may choose. In answers, and in gRPC's trailing metadata of errors."""

RETRY_AFTER = "retry-after"
"""In whole seconds: when to send a refused request again."""

IDEMPOTENCY_KEY = "idempotency-key"
"""Submitting a job again with the same key is harmless."""

SIGNATURE = "dyorc-signature"
"""Of a webhook: when it was sent, and a signature with the secret."""

GRPC_CODE = "dyorc-code"
GRPC_RETRYABLE = "dyorc-retryable"
GRPC_RETRY_MS = "grpc-retry-pushback-ms"
GRPC_TRACE_ID = "dyorc-trace-id"
"""Of an error over gRPC, in its trailing metadata: its code, whether and when to send the request again, and its trace."""
