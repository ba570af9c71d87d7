"""Programs that ask another server, against a server of our own in a process of its own."""

from collections.abc import Iterator

import numpy as np
import pytest

import dyorc
from dyorc.errors import UnknownModelError
from dyorc.testing import ServerProcess
from tests.server_process import serving, target
from tests.workflows.asked import Reading


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """The other server."""
    targets = [("asked", "read"), ("asked", "spread"), ("openai_models", "talker"), ("openai_models", "silent")]
    with serving([target(*each) for each in targets], in_process=True) as server:
        yield server


def test_a_model_of_the_open_inference_protocol(server: ServerProcess) -> None:
    program = dyorc.programs.http(f"{server.url}/v2/models/spread")
    assert program.name == "spread"
    assert [(spec.name, spec.describe()) for spec in program.signature.inputs] == [("x", "[x_0]")]
    answer = dyorc.run(program, x=np.array([3, 1, 2], np.float32))
    assert {name: value.tolist() for name, value in answer.items()} == {"output_0": 2.0, "output_1": [1, 2, 3]}


def test_values_by_json(server: ServerProcess) -> None:
    def ask(text: str, minimum: int) -> Reading: ...

    program = dyorc.programs.http(f"{server.url}/run/read", ask)
    assert dyorc.run(program, text="to be or not", minimum=3) == Reading(["not"], 3)


def test_a_failure_names_the_others_error(server: ServerProcess) -> None:
    def ask(text: str) -> Reading: ...

    def ask_wrongly(words: str) -> Reading: ...

    with pytest.raises(dyorc.ProgramError, match=r"program 'ask' failed: ExecutionError: .* 500 .*there is no text"):
        dyorc.run(dyorc.programs.http(f"{server.url}/run/read", ask), text="")
    with pytest.raises(dyorc.ProgramError, match=r"'ask_wrongly' failed: InvalidInputError: .* 400 "):
        dyorc.run(dyorc.programs.http(f"{server.url}/run/read", ask_wrongly), words="a")
    with pytest.raises(UnknownModelError):
        dyorc.programs.http(f"{server.url}/v2/models/absent")


def _say(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_a_chat_model_behind_openais_api(server: ServerProcess) -> None:
    program = dyorc.programs.openai(f"{server.url}/v1", "talker", api_key="none")
    assert list(dyorc.run(program, messages=_say("to be or not"))) == ["not ", "or ", "be ", "to "]
    assert list(dyorc.run(program, messages=_say("to be or not"), sampling={"max_tokens": 2})) == ["not ", "or "]
    whole = dyorc.programs.openai(f"{server.url}/v1", "silent", is_streaming=False)
    assert dyorc.run(whole, messages=_say("or not")) == "not or "


def test_failures_of_a_chat_model(server: ServerProcess) -> None:
    program = dyorc.programs.openai(f"{server.url}/v1", "talker")
    parts = dyorc.run(program, messages=_say("a break before"))
    assert next(parts) == "before "
    with pytest.raises(dyorc.ProgramError, match=r"ExecutionError: the remote model failed: .*it breaks"):
        next(parts)
    with pytest.raises(dyorc.ProgramError, match=r"UnknownModelError: .*/v1/chat/completions: 404 .*absent"):
        list(dyorc.run(dyorc.programs.openai(f"{server.url}/v1", "absent"), messages=_say("a")))
