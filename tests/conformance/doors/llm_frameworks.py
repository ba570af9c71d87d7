# pyright: basic
# The frameworks are in an environment of their own, so their types are unknown here.
"""`python llm_frameworks.py (litellm|langchain) URL`: checks of frameworks for language models, in an environment of their own.

Prints a line of JSON for each check: `name`, and `detail`, which is empty if it passed. Standard library and the framework only.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

TEXT = "one two three four"
REPLY = "four three two one "
MESSAGES = [{"role": "user", "content": TEXT}]
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather.", "parameters": {"type": "object", "properties": {}}},
}
VECTORS = [[0.75, 0.75, 0.5], [0.125, 0.25, 0.5]]
"""What `embedder` makes of "banana" and "a"."""


def expect(value: object, expected: object) -> None:
    """Checks that two values are equal."""
    if value != expected:
        raise AssertionError(f"{value!r}, expected {expected!r}")


def error_of(ask: Callable[[], object]) -> Exception:
    """Returns what `ask` raises."""
    try:
        answer = ask()
    except Exception as error:
        return error
    raise AssertionError(f"expected an error, got {answer!r}")


def litellm_checks(url: str) -> dict[str, Callable[[], None]]:
    """LiteLLM, which names the kind of server in front of the model."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it looks for prices on the web
    import litellm  # pyright: ignore[reportMissingImports]

    litellm.suppress_debug_info = True
    place: dict[str, Any] = {"api_base": f"{url}/v1", "api_key": "any", "max_retries": 0}

    def complete() -> None:
        answer = litellm.completion(model="openai/talker", messages=MESSAGES, **place)
        expect((answer.choices[0].message.content, answer.usage.completion_tokens), (REPLY, 4))

    def stream() -> None:
        parts = litellm.completion(model="openai/talker", messages=MESSAGES, stream=True, **place)
        expect("".join(part.choices[0].delta.content or "" for part in parts), REPLY)

    def asynchronous() -> None:
        async def ask() -> tuple[str, str]:
            whole = await litellm.acompletion(model="openai/talker", messages=MESSAGES, **place)
            parts = await litellm.acompletion(model="openai/talker", messages=MESSAGES, stream=True, **place)
            text = "".join([part.choices[0].delta.content or "" async for part in parts])
            return whole.choices[0].message.content, text

        expect(asyncio.run(ask()), (REPLY, REPLY))

    def tools() -> None:
        answer = litellm.completion(model="openai/tooled", messages=MESSAGES, tools=[TOOL], **place)
        call = answer.choices[0].message.tool_calls[0]
        expect((call.function.name, json.loads(call.function.arguments)), ("weather", {"city": "Bern"}))
        parts = litellm.completion(model="openai/tooled", messages=MESSAGES, tools=[TOOL], stream=True, **place)
        whole = litellm.stream_chunk_builder(list(parts))
        expect(json.loads(whole.choices[0].message.tool_calls[0].function.arguments), {"city": "Bern"})

    def texts() -> None:
        answer = litellm.text_completion(model="text-completion-openai/writer", prompt="a", max_tokens=2, **place)
        expect(answer.choices[0].text, "a0a1")

    def responses() -> None:
        answer = litellm.responses(model="openai/talker", input=TEXT, **place)
        expect(answer.output[0].content[0].text, REPLY)

    def embeddings() -> None:
        answer = litellm.embedding(model="openai/embedder", input=["banana", "a"], **place)
        expect([each["embedding"] for each in answer.data], VECTORS)

    def rerank() -> None:
        answer = litellm.rerank(
            model="hosted_vllm/ranker", query="a", documents=["b", "banana"], top_n=1, api_base=f"{url}/v1", api_key="any"
        )
        expect([(each["index"], each["relevance_score"]) for each in answer.results], [(1, 3.0)])

    def errors() -> None:
        unknown = error_of(lambda: litellm.completion(model="openai/nobody", messages=MESSAGES, **place))
        expect(type(unknown).__name__, "NotFoundError")
        empty = error_of(lambda: litellm.completion(model="openai/talker", messages=MESSAGES, n=0, **place))
        expect(type(empty).__name__, "BadRequestError")
        late = error_of(lambda: litellm.completion(model="openai/endless", messages=MESSAGES, timeout=0.5, **place))
        expect(type(late).__name__, "Timeout")

    return {
        "completion": complete,
        "completion, streaming": stream,
        "acompletion, whole and streaming": asynchronous,
        "tools, whole and streaming": tools,
        "text_completion": texts,
        "responses": responses,
        "embedding": embeddings,
        "rerank": rerank,
        "errors: their classes": errors,
    }


def langchain_checks(url: str) -> dict[str, Callable[[], None]]:
    """LangChain's models for OpenAI."""
    from langchain_core.messages import HumanMessage
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings  # pyright: ignore[reportMissingImports]

    place: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": "any", "max_retries": 0}
    chat = ChatOpenAI(model="talker", stream_usage=True, **place)

    def invoke() -> None:
        answer = chat.invoke(TEXT)
        expect((answer.content, answer.usage_metadata["output_tokens"]), (REPLY, 4))
        chain = ChatPromptTemplate.from_template("one {word} three four") | chat
        expect(chain.invoke({"word": "two"}).content, REPLY)

    def stream() -> None:
        parts = list(chat.stream(TEXT))
        expect("".join(part.content for part in parts), REPLY)
        expect(next(part.usage_metadata["output_tokens"] for part in parts if part.usage_metadata), 4)

    def asynchronous() -> None:
        async def ask() -> tuple[str, str]:
            whole = (await chat.ainvoke(TEXT)).content
            return whole, "".join([part.content async for part in chat.astream(TEXT)])

        expect(asyncio.run(ask()), (REPLY, REPLY))

    def batch() -> None:
        expect([answer.content for answer in chat.batch([TEXT, "a b"])], [REPLY, "b a "])

    def tools() -> None:
        bound = ChatOpenAI(model="tooled", **place).bind_tools([TOOL])
        expect([(call["name"], call["args"]) for call in bound.invoke(TEXT).tool_calls], [("weather", {"city": "Bern"})])
        whole = None
        for part in bound.stream(TEXT):
            whole = part if whole is None else whole + part
        assert whole is not None
        expect([(call["name"], call["args"]) for call in whole.tool_calls], [("weather", {"city": "Bern"})])

    def structured() -> None:
        schema = {"title": "City", "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        model = chat.with_structured_output(schema, method="json_schema")
        expect(model.invoke([HumanMessage('{"city":"Bern"}')]), {"city": "Bern"})

    def responses() -> None:
        model = ChatOpenAI(model="talker", use_responses_api=True, **place)
        expect(model.invoke(TEXT).text, REPLY)
        expect("".join(part.text for part in model.stream(TEXT)), REPLY)

    def texts() -> None:
        expect(OpenAI(model="writer", max_tokens=2, **place).invoke("a"), "a0a1")

    def embeddings() -> None:
        model = OpenAIEmbeddings(model="embedder", check_embedding_ctx_length=False, **place)
        expect(model.embed_documents(["banana", "a"]), VECTORS)

    def errors() -> None:
        expect(error_of(lambda: ChatOpenAI(model="nobody", **place).invoke(TEXT)).status_code, 404)  # type: ignore[attr-defined]
        late = error_of(lambda: ChatOpenAI(model="endless", timeout=0.5, **place).invoke(TEXT))
        expect("timed out" in str(late).lower(), True)

    return {
        "ChatOpenAI.invoke, in a chain too": invoke,
        "ChatOpenAI.stream, with usage": stream,
        "ChatOpenAI.ainvoke, ChatOpenAI.astream": asynchronous,
        "ChatOpenAI.batch": batch,
        "bind_tools, whole and streaming": tools,
        "with_structured_output": structured,
        "use_responses_api, whole and streaming": responses,
        "OpenAI": texts,
        "OpenAIEmbeddings": embeddings,
        "errors": errors,
    }


def main() -> None:
    """Runs the checks."""
    checks = {"litellm": litellm_checks, "langchain": langchain_checks}[sys.argv[1]](sys.argv[2])
    for name, check in checks.items():
        detail = ""
        try:
            check()
        except Exception as error:
            detail = " ".join(f"{type(error).__name__}: {error}".split())
        print(json.dumps({"name": name, "detail": detail}), flush=True)


if __name__ == "__main__":
    main()
