# pyright: basic, reportAttributeAccessIssue=false, reportMissingImports=false
"""LitServe with the model in one LitAPI, which answers whole requests in batches. FastAPI reads annotations."""

import os
from typing import Annotated

import litserve
from fastapi import Depends, Request, Response

from benchmarks.focused.chat.answering import MAX_BATCH_SIZE, answer_texts, load_model


async def _body(request: Request) -> bytes:
    return await request.body()


class Chat(litserve.LitAPI):
    """Answers a batch of questions; the next batch waits for the longest answer."""

    def setup(self, device: str) -> None:
        self._model = load_model()

    def decode_request(self, request: Annotated[bytes, Depends(_body)]) -> bytes:
        return request

    def batch(self, inputs: list[bytes]) -> list[bytes]:
        return inputs

    def predict(self, x: list[bytes]) -> list[bytes]:
        return answer_texts(self._model, x)

    def unbatch(self, output: list[bytes]) -> list[bytes]:
        return output

    def encode_response(self, output: bytes) -> Response:
        return Response(output, media_type="application/octet-stream")


if __name__ == "__main__":
    api = Chat(max_batch_size=MAX_BATCH_SIZE, batch_timeout=0.001, api_path="/infer")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(
        host="127.0.0.1",
        port=int(os.environ["BENCHMARK_PORT"]),
        num_api_servers=1,
        log_level="warning",
        generate_client_file=False,
        access_log=False,
    )
