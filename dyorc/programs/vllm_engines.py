"""A language model on vLLM's engine, in the program's own replica."""

import inspect
import uuid
from collections.abc import AsyncIterator
from typing import Any

import dyorc
from dyorc.programs.declaring import import_library


def vllm(
    model: str,
    *,
    name: str = "vllm",
    max_ongoing: int = 256,
    engine: dict[str, Any] | None = None,
    sampling: dict[str, Any] | None = None,
    **options: Any,
) -> dyorc.Program:
    """Returns a program from a ``prompt`` to its continuation, part by part.

    A prompt is a text, or a list of messages, which are put into the model's chat template. The program's second parameter,
    ``sampling``, has fields of vLLM's ``SamplingParams`` for one call: ``{"max_tokens": 100}``. vLLM makes the batches,
    and aborts a call that nobody reads. Where vLLM is not installed, the replica does not load, and its error says what installs
    it.

    Args:
        model: A folder, or a name that vLLM knows.
        max_ongoing: How many calls vLLM gets at once.
        engine: Fields of vLLM's ``AsyncEngineArgs``: ``{"max_model_len": 8192, "dtype": "bfloat16"}``.
        sampling: Fields of ``SamplingParams`` for all calls.
        options: Of `dyorc.program`, such as ``ray_actor_options={"num_gpus": 1}``.
    """

    for_all = sampling or {}

    class Engine:
        def __init__(self) -> None:
            self.library = import_library("vllm", f"program {name!r}", "pip install vllm")
            arguments = self.library.AsyncEngineArgs(model=model, **(engine or {}))
            self.engine = self.library.AsyncLLMEngine.from_engine_args(arguments)

        async def __call__(
            self, prompt: str | list[dict[str, Any]], sampling: dict[str, Any] | None = None
        ) -> AsyncIterator[str]:
            if not isinstance(prompt, str):
                prompt = await self.as_text(prompt)
            request_id = uuid.uuid4().hex
            parameters = self.library.SamplingParams(**{**for_all, **(sampling or {})})
            num_sent, is_finished = 0, False
            try:
                async for output in self.engine.generate(prompt, parameters, request_id):
                    is_finished = output.finished
                    text = output.outputs[0].text  # all of it so far
                    if len(text) > num_sent:
                        yield text[num_sent:]
                        num_sent = len(text)
            finally:
                if not is_finished:
                    await self.engine.abort(request_id)

        async def as_text(self, messages: list[dict[str, Any]]) -> str:
            tokenizer = self.engine.get_tokenizer()
            if inspect.isawaitable(tokenizer):  # in some versions
                tokenizer = await tokenizer
            return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    return dyorc.program(name=name, batched=False, max_ongoing=max_ongoing, **options)(Engine)()
