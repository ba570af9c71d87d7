"""aiperf and guidellm measure the example chat: language models' load generators, each in an environment of its own.

Nothing is downloaded: the tokenizer is made here, one token for each byte, and the prompts are the example's own questions.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.conformance.doors.doors import ROOT, Addresses, Door, output_of, run_checks
from tests.conformance.rows import Row, expect
from tests.server_process import serving

_CLIENTS = ROOT / ".venv-clients"
_CHAT = ROOT / "examples" / "chat"
_NUM_REQUESTS = 24
_QUESTIONS = [f"What is {number} plus {number % 5}?" for number in range(_NUM_REQUESTS)]
_OFFLINE = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
_MAKE_TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(sys.argv[1])
"""


def _check_aiperf(url: str, tokenizer: Path, folder: Path) -> None:
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"text": question}) + "\n" for question in _QUESTIONS))
    command = [
        str(_CLIENTS / "aiperf" / "bin" / "aiperf"), "profile", "--model", "village", "--url", url, "--endpoint-type", "chat",
        "--streaming", "--tokenizer", str(tokenizer), "--use-server-token-count", "--input-file", str(prompts),
        "--custom-dataset-type", "single_turn", "--concurrency", "4", "--request-count", str(_NUM_REQUESTS), "--ui", "simple",
        "--artifact-dir", str(folder / "artifacts"),
    ]  # fmt: skip
    output_of(command, {"PYTHONPATH": ""}, folder)  # it finds no local tokenizer where transformers may not go online
    report = json.loads((folder / "artifacts" / "profile_export_aiperf.json").read_text())
    expect(report["request_count"]["avg"], _NUM_REQUESTS, "the number of valid requests")
    expect("error_request_count" in report or bool(report.get("error_summary")), False, "whether there are errors")
    expect(report["output_token_count"]["avg"] > 1, True, "whether answers have tokens")
    expect(report["time_to_first_token"]["avg"] < report["request_latency"]["avg"], True, "whether tokens came one by one")


def _check_guidellm(url: str, tokenizer: Path, folder: Path) -> None:
    (folder / "prompts.txt").write_text("\n".join(_QUESTIONS))
    report = folder / "report.json"
    command = [
        str(_CLIENTS / "guidellm" / "bin" / "guidellm"), "run", "--backend", f"kind=openai_http,target={url},model=village",
        "--profile", "kind=concurrent,streams=4", "--constraint", f"kind=max_requests,count={_NUM_REQUESTS}",
        "--data", f"kind=text_file,path={folder / 'prompts.txt'}", "--tokenizer", f"kind=huggingface_auto,model={tokenizer}",
        "--output", f"kind=json,path={report}", "--disable-console-interactive",
    ]  # fmt: skip
    output_of(command, _OFFLINE, folder)
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    expect((totals["successful"], totals["errored"], totals["incomplete"]), (_NUM_REQUESTS, 0, 0), "the requests")
    tokens = [request["output_metrics"]["text_tokens"] for request in benchmark["requests"]["successful"]]
    expect(sum(tokens) > 2 * _NUM_REQUESTS, True, f"whether answers have tokens, {tokens}")


_Check = Callable[[str, Path, Path], None]


def _find_missing(name: str) -> str:
    lacks = [] if (_CLIENTS / name / "bin" / name).exists() else [f"the environment of {name}"]
    return ", ".join(lacks + ([] if (_CHAT / "weights" / "main.safetensors").exists() else ["the weights of examples/chat"]))


def _run(name: str, check: _Check, folder: Path) -> Iterator[Row]:
    tokenizer = folder / "tokenizer"
    output_of([str(_CLIENTS / name / "bin" / "python"), "-c", _MAKE_TOKENIZER, str(tokenizer)], _OFFLINE, folder)
    with serving([f"{_CHAT / 'workflow.py'}:village"], in_process=True) as server:
        promise = f"{_NUM_REQUESTS} streamed chats with examples/chat, 4 at a time, all valid"
        yield from run_checks(name, {promise: lambda: check(server.url, tokenizer, folder)})


def _door(name: str, check: _Check) -> Door:
    def run(addresses: Addresses, folder: Path) -> Iterator[Row]:
        return _run(name, check, folder)

    return Door(name, lambda: _find_missing(name), run)


AIPERF = _door("aiperf", _check_aiperf)
GUIDELLM = _door("guidellm", _check_guidellm)
