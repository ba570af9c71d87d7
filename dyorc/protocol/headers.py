"""Headers that the protocol or DyOrc gives a meaning, in lower case: of HTTP, and of gRPC's metadata."""

JSON_LENGTH = "inference-header-content-length"
"""Length of the JSON in a body, if raw tensors follow it."""

TIMEOUT = "request-timeout"
"""In seconds; after that, the client is not interested any more."""

AUTHORIZATION = "authorization"
API_KEY = "x-api-key"
"""Who sends the request: ``Bearer KEY`` in the first, or the key alone in the second."""

RETRY_AFTER = "retry-after"
"""In whole seconds: when to send a refused request again."""

IDEMPOTENCY_KEY = "idempotency-key"
"""Submitting a job again with the same key is harmless."""

SIGNATURE = "dyorc-signature"
"""Of a webhook: when it was sent, and a digest that only who knows the secret can make."""

GRPC_CODE = "dyorc-code"
GRPC_RETRYABLE = "dyorc-retryable"
GRPC_RETRY_MS = "grpc-retry-pushback-ms"
"""Of an error over gRPC, in its trailing metadata: its code, whether the request may be sent again, and when."""
