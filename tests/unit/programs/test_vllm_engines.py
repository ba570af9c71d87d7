"""The program on vLLM's engine: what it gives the engine, and what it makes of the answers."""

import sys

import pytest

import dyorc
from dyorc.errors import ProgramLoadError
from tests.counting_engine import CountingEngine, install


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[CountingEngine]:
    """The engines that were made."""
    return install(monkeypatch)


def test_parts_are_what_is_new(engines: list[CountingEngine]) -> None:
    program = dyorc.programs.vllm("tiny", engine={"max_model_len": 64}, sampling={"max_tokens": 3, "seed": 1})
    assert list(dyorc.run(program, prompt="hello")) == ["5: 0", " 1", " 2"]
    assert "".join(dyorc.run(program, prompt="hi", sampling={"max_tokens": 2})) == "2: 0 1"
    (engine,) = engines
    assert engine.arguments == {"model": "tiny", "max_model_len": 64}
    assert engine.given[1] == ("hi", {"max_tokens": 2, "seed": 1})
    assert engine.aborted == []


def test_messages_go_through_the_models_template(engines: list[CountingEngine]) -> None:
    program = dyorc.programs.vllm("tiny", sampling={"max_tokens": 1})
    list(dyorc.run(program, prompt=[{"role": "user", "content": "hi"}]))
    assert engines[0].given[0][0] == "<user>hi<assistant>"


def test_without_vllm_the_error_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ProgramLoadError, match="program 'vllm' needs vllm, which is not installed: pip install vllm"):
        list(dyorc.run(dyorc.programs.vllm("tiny"), prompt="hi"))
