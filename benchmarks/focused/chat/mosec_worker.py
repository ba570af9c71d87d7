# pyright: basic, reportAttributeAccessIssue=false, reportMissingImports=false
"""Mosec with the model in one worker, which answers whole requests in batches."""

from __future__ import annotations

import os
import sys

from mosec import Server, Worker

from benchmarks.focused.chat.answering import MAX_BATCH_SIZE, answer_texts, load_model


class Chat(Worker):
    """Answers a batch of questions; the next batch waits for the longest answer."""

    resp_mime_type = "application/octet-stream"

    def __init__(self) -> None:
        super().__init__()
        self._model = load_model()

    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: list[bytes]) -> list[bytes]:
        return answer_texts(self._model, data)


if __name__ == "__main__":
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", os.environ["BENCHMARK_PORT"], "--log-level", "warning"]
    sys.argv += ["--timeout", "60000", "--capacity", "16384"]
    server = Server()
    server.append_worker(Chat, num=1, max_batch_size=MAX_BATCH_SIZE, max_wait_time=1, route="/infer")
    server.run()
