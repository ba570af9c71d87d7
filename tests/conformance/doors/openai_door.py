"""The official `openai` client: every method of it that the server answers, blocking and asynchronous, whole and streaming, and
what it does when it is refused, or waits too long. What models answer is what plain Python says (`tests.workflows`)."""

import asyncio
import importlib.util
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from tests.conformance.doors.doors import Addresses, Door, run_checks
from tests.conformance.rows import Row, expect
from tests.server_process import serving, target

if TYPE_CHECKING:
    import openai

_NAME = "openai, the official client"
_TEXT = "one two three four"
_REPLY = "four three two one "
_MESSAGES: Any = [{"role": "user", "content": _TEXT}]
_TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
_WAIT_S = 60.0


class City(BaseModel):
    """A structured output."""

    city: str


def expect_error(kind: type[Exception], ask: Callable[[], object]) -> Any:
    """Returns the error of this kind that `ask` raises."""
    try:
        answer = ask()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got {answer!r}")


class _Checks:
    """Checks by the blocking client, and by the asynchronous one where that is another code path.

    Args:
        url: Of the server's API.
    """

    def __init__(self, url: str) -> None:
        import openai

        self._openai = openai
        self._url = url
        self._client = openai.OpenAI(base_url=url, api_key="any", max_retries=0, timeout=_WAIT_S)

    def close(self) -> None:
        self._client.close()

    def _run(self, ask: Callable[["openai.AsyncOpenAI"], Any]) -> Any:
        """Returns what an asynchronous client gets."""

        async def run() -> Any:
            async with self._openai.AsyncOpenAI(base_url=self._url, api_key="any", max_retries=0, timeout=_WAIT_S) as client:
                return await ask(client)

        return asyncio.run(run())

    def models(self) -> None:
        expect("talker" in [model.id for model in self._client.models.list()], True, "whether talker is listed")
        expect(self._client.models.retrieve("talker").id, "talker", "the model")

    def chat(self) -> None:
        answer = self._client.chat.completions.create(model="talker", messages=_MESSAGES)
        choice = answer.choices[0]
        expect((choice.message.content, choice.finish_reason), (_REPLY, "stop"), "the choice")
        expect(answer.usage is not None and answer.usage.completion_tokens, 4, "the tokens")

    def chat_async(self) -> None:
        answer = self._run(lambda client: client.chat.completions.create(model="talker", messages=_MESSAGES))
        expect(answer.choices[0].message.content, _REPLY, "the answer")

    def chat_stream(self) -> None:
        options: Any = {"include_usage": True}
        chunks = list(
            self._client.chat.completions.create(model="talker", messages=_MESSAGES, stream=True, stream_options=options)
        )
        expect("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), _REPLY, "the answer")
        usage = chunks[-1].usage
        expect(usage is not None and usage.completion_tokens, 4, "the tokens")

    def chat_stream_async(self) -> None:
        async def ask(client: Any) -> str:
            stream = await client.chat.completions.create(model="talker", messages=_MESSAGES, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        expect(self._run(ask), _REPLY, "the answer")

    def stream_helper(self) -> None:
        with self._client.chat.completions.stream(model="tooled", messages=_MESSAGES, tools=_TOOLS) as stream:
            done = [event.arguments for event in stream if event.type == "tool_calls.function.arguments.done"]
            final = stream.get_final_completion()
        expect([json.loads(arguments) for arguments in done], [{"city": "Bern"}], "the arguments")
        expect(final.choices[0].finish_reason, "tool_calls", "why it ended")

    def tools(self) -> None:
        answer = self._client.chat.completions.create(model="tooled", messages=_MESSAGES, tools=_TOOLS)
        call: Any = (answer.choices[0].message.tool_calls or [])[0]
        expect((call.function.name, json.loads(call.function.arguments)), ("weather", {"city": "Bern"}), "the call")
        again: Any = [*_MESSAGES, answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "it rains"}]
        reply = self._client.chat.completions.create(model="talker", messages=again)
        expect(reply.choices[0].message.content, "rains it ", "the answer to the tool's result")

    def parse(self) -> None:
        messages: Any = [{"role": "user", "content": '{"city":"Bern"}'}]
        answer = self._client.chat.completions.parse(model="talker", messages=messages, response_format=City)
        expect(answer.choices[0].message.parsed, City(city="Bern"), "the parsed answer")

    def choices(self) -> None:
        answer = self._client.chat.completions.create(
            model="talker", messages=_MESSAGES, n=3, stop=["two"], max_completion_tokens=3
        )
        expect([choice.message.content for choice in answer.choices], ["four three "] * 3, "the choices")
        short = self._client.chat.completions.create(model="limited", messages=_MESSAGES, max_completion_tokens=2)
        expect(short.choices[0].finish_reason, "length", "why it ended")

    def completions(self) -> None:
        answer = self._client.completions.create(model="writer", prompt=["a", "b"], max_tokens=2)
        expect([choice.text for choice in answer.choices], ["a0a1", "b0b1"], "the texts")
        stream = self._client.completions.create(model="writer", prompt="a", stream=True)
        expect("".join(chunk.choices[0].text for chunk in stream), "a0a1a2", "the streamed text")

    def responses(self) -> None:
        answer = self._client.responses.create(model="talker", input=_TEXT, instructions="Be brief.")
        expect((answer.output_text, answer.status), (_REPLY, "completed"), "the answer")
        asynchronous = self._run(lambda client: client.responses.create(model="talker", input=_TEXT))
        expect(asynchronous.output_text, _REPLY, "the answer to the asynchronous client")

    def responses_stream(self) -> None:
        with self._client.responses.stream(model="talker", input=_TEXT) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        expect(("".join(deltas), final.output_text), (_REPLY, _REPLY), "the deltas, and the whole")

    def responses_tools(self) -> None:
        tools: Any = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
        answer = self._client.responses.create(model="tooled", input=_TEXT, tools=tools)
        call: Any = next(item for item in answer.output if item.type == "function_call")
        expect((call.name, json.loads(call.arguments)), ("weather", {"city": "Bern"}), "the call")
        given: Any = [
            {"role": "user", "content": _TEXT}, *answer.output,
            {"type": "function_call_output", "call_id": call.call_id, "output": "it rains"},
        ]  # fmt: skip
        expect(self._client.responses.create(model="talker", input=given).output_text, "rains it ", "the answer to the result")

    def embeddings(self) -> None:
        for encoding in ("float", "base64"):
            answer = self._client.embeddings.create(model="embedder", input=["banana", "a"], encoding_format=encoding)  # type: ignore[arg-type]
            if encoding == "float":
                expect([each.embedding for each in answer.data], [[0.75, 0.75, 0.5], [0.125, 0.25, 0.5]], "the vectors")
        default = self._client.embeddings.create(model="embedder", input="banana")
        expect(default.data[0].embedding, [0.75, 0.75, 0.5], "the vector that came as base64")

    def raw(self) -> None:
        headers = {"X-Request-Id": "mine", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
        raw = self._client.chat.completions.with_raw_response.create(model="talker", messages=_MESSAGES, extra_headers=headers)
        expect({name: raw.headers[name] for name in ("x-request-id", "traceparent")},
               {"x-request-id": "mine", "traceparent": headers["traceparent"]}, "the headers")  # fmt: skip
        answer = raw.parse()
        expect((answer.choices[0].message.content, answer._request_id), (_REPLY, "mine"), "the answer and its id")  # pyright: ignore[reportPrivateUsage]
        with self._client.chat.completions.with_streaming_response.create(model="talker", messages=_MESSAGES) as slow:
            expect(json.loads(slow.read())["choices"][0]["message"]["content"], _REPLY, "the bytes")

    def extras(self) -> None:
        answer = self._client.chat.completions.create(
            model="talker", messages=_MESSAGES, user="somebody", service_tier="priority",
            extra_body={"priority": 3, "new_field": {"a": [1]}}, extra_headers={"X-Priority": "2", "Request-Timeout": "60"},
        )  # fmt: skip
        expect(answer.choices[0].message.content, _REPLY, "the answer")

    def errors(self) -> None:
        create = self._client.chat.completions.create
        unknown = expect_error(self._openai.NotFoundError, lambda: create(model="nobody", messages=_MESSAGES))
        expect((unknown.status_code, unknown.code), (404, "model_not_found"), "the error")
        empty = expect_error(self._openai.BadRequestError, lambda: create(model="talker", messages=[]))
        expect((empty.param, empty.type), ("messages", "invalid_request_error"), "the error")
        many = expect_error(
            self._openai.BadRequestError, lambda: self._client.completions.create(model="writer", prompt=["a"] * 300, n=16)
        )
        expect((many.status_code, many.param), (400, "prompt"), "the error")
        failing: Any = [{"role": "user", "content": "fail"}]
        failed = expect_error(self._openai.InternalServerError, lambda: create(model="talker", messages=failing))
        expect("it fails" in str(failed), True, f"whether {failed} says why")

    def broken_streams(self) -> None:
        breaking: Any = [{"role": "user", "content": "break one"}]
        stream = self._client.chat.completions.create(model="talker", messages=breaking, stream=True)
        broken = expect_error(self._openai.APIError, lambda: [chunk.id for chunk in stream])
        expect("it breaks" in str(broken), True, f"whether {broken} says why")
        events = list(self._client.responses.create(model="talker", input="break one", stream=True))
        expect(events[-1].type, "response.failed", "the last event")

    def timeouts(self) -> None:
        late = expect_error(
            self._openai.APITimeoutError,
            lambda: self._client.with_options(timeout=0.5).chat.completions.create(model="endless", messages=_MESSAGES),
        )
        expect(late.status_code if hasattr(late, "status_code") else None, None, "the status, since there was no answer")
        overdue = expect_error(
            self._openai.InternalServerError,
            lambda: self._client.chat.completions.create(
                model="endless", messages=_MESSAGES, extra_headers={"Request-Timeout": "0.3"}
            ),
        )
        expect(overdue.status_code, 504, "the status of a deadline that the server knows")

    def closed_stream(self) -> None:
        with self._client.chat.completions.create(model="endless", messages=_MESSAGES, stream=True) as stream:
            expect(next(iter(stream)).choices[0].delta.role, "assistant", "the role in the first chunk")
        expect(self._client.models.retrieve("endless").id, "endless", "the next answer on the client")


class _Limited:
    """Checks of a server with keys and one place for requests.

    Args:
        folder: For the file of keys.
    """

    def __init__(self, folder: Path) -> None:
        import openai

        self._openai = openai
        keys = {name: new_key() for name in ("free", "slow", "bound")}
        self._keys = {name: key for name, (key, _) in keys.items()}
        records = {name: record for name, (_, record) in keys.items()}
        write_tenants(
            folder / "keys.toml",
            [
                TenantRecord(name="free", keys=[records["free"]]),
                TenantRecord(name="slow", keys=[records["slow"]], max_requests_per_s=1),
                TenantRecord(name="bound", keys=[records["bound"]], models=["writer"]),
            ],
        )
        self._file = folder / "keys.toml"

    def _client(self, url: str, key: str, max_retries: int) -> Any:
        return self._openai.OpenAI(base_url=f"{url}/v1", api_key=self._keys.get(key, key), max_retries=max_retries)

    def keys(self, url: str) -> None:
        with self._client(url, "wrong", 0) as client:
            expect_error(self._openai.AuthenticationError, client.models.list)
        with self._client(url, "bound", 0) as client:
            expect([model.id for model in client.models.list()], ["writer"], "the models of the key")
            expect_error(
                self._openai.PermissionDeniedError, lambda: client.chat.completions.create(model="talker", messages=_MESSAGES)
            )

    def too_fast(self, url: str) -> None:
        with self._client(url, "slow", 0) as client:
            ask = partial(client.chat.completions.create, model="talker", messages=_MESSAGES)
            refused = expect_error(self._openai.RateLimitError, lambda: [ask() for _ in range(3)])
            expect(int(refused.response.headers["retry-after"]) >= 1, True, "whether Retry-After is a number of seconds")
        with self._client(url, "slow", 5) as client:
            for _ in range(2):
                answer = client.chat.completions.create(model="talker", messages=_MESSAGES)
                expect(answer.choices[0].message.content, _REPLY, "the answer after a retry")

    def no_room(self, url: str) -> None:
        with self._client(url, "free", 0) as client:
            stream = client.chat.completions.create(model="endless", messages=_MESSAGES, stream=True)
            try:
                next(iter(stream))
                ask = partial(client.chat.completions.create, model="talker", messages=_MESSAGES)
                refused = expect_error(self._openai.InternalServerError, ask)
                expect(refused.status_code, 503, "the status")
                later = threading.Timer(0.5, stream.close)
                later.start()
                with self._client(url, "free", 20) as patient:
                    answer = patient.chat.completions.create(model="talker", messages=_MESSAGES)
                later.join()
            finally:
                stream.close()
            expect(answer.choices[0].message.content, _REPLY, "the answer after retries")

    def check(self) -> Iterator[Row]:
        targets = [target("openai_models", name) for name in ("talker", "writer", "endless")]
        settings = {"DYORC_GATEWAY__KEYS_FILE": str(self._file), "DYORC_GATEWAY__MAX_REQUESTS": "1"}
        with serving(targets, in_process=True, **settings) as server:
            checks = {
                "keys: 401, 403, and the models of a key": self.keys,
                "429: Retry-After, and retries that succeed": self.too_fast,
                "503: retries that succeed": self.no_room,
            }
            yield from run_checks(_NAME, {name: partial(check, server.url) for name, check in checks.items()})


def _find_missing() -> str:
    return "" if importlib.util.find_spec("openai") else "openai"


def _check(addresses: Addresses, folder: Path) -> Iterator[Row]:
    checks = _Checks(f"{addresses.http}/v1")
    try:
        yield from run_checks(
            _NAME,
            {
                "models.list, models.retrieve": checks.models,
                "chat.completions.create": checks.chat,
                "chat.completions.create, asynchronous": checks.chat_async,
                "chat.completions.create, streaming, with usage": checks.chat_stream,
                "chat.completions.create, streaming, asynchronous": checks.chat_stream_async,
                "chat.completions.stream": checks.stream_helper,
                "chat.completions.parse": checks.parse,
                "tools, and their results": checks.tools,
                "n, stop, max_completion_tokens": checks.choices,
                "completions.create, of several prompts, streaming": checks.completions,
                "responses.create, asynchronous too": checks.responses,
                "responses.stream": checks.responses_stream,
                "responses.create with tools, and their results": checks.responses_tools,
                "embeddings.create, as numbers and as base64": checks.embeddings,
                "with_raw_response, with_streaming_response, ids": checks.raw,
                "extra_body, extra_headers, user, service_tier": checks.extras,
                "errors: their classes, codes and fields": checks.errors,
                "errors in the middle of a stream": checks.broken_streams,
                "timeouts of the client and of the server": checks.timeouts,
                "a stream that is closed early": checks.closed_stream,
            },
        )
    finally:
        checks.close()
    yield from _Limited(folder).check()


DOOR = Door(_NAME, _find_missing, _check)
