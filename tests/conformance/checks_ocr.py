"""The OCR example by all four clients: a page of text in, its lines out."""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from clients import KINDS, Client
from rows import Table, expect


async def read_page(client: Client, page: np.ndarray, texts: list[str]) -> None:
    result = await client.infer("ocr", [client.input("page", page, "UINT8")])
    found = [text.decode() for text in result.as_numpy("text").tolist()]
    same = sum(one == other for one, other in zip(found, texts, strict=False))
    expect(len(found), len(texts), f"the number of lines in {found}")
    assert same >= len(texts) - 1, f"read {found}, the page has {texts}"
    expect(tuple(result.as_numpy("boxes").shape), (len(texts), 4, 2), "the shape of the boxes")


async def read_empty_page(client: Client) -> None:
    result = await client.infer("ocr", [client.input("page", np.full((64, 64, 3), 250, np.uint8), "UINT8")])
    expect(tuple(result.as_numpy("boxes").shape), (0, 4, 2), "the shape of the boxes")


async def metadata(client: Client) -> None:
    found = await client.call("get_model_metadata", "ocr")
    shapes = {one["name"]: [int(size) for size in one["shape"]] for one in found["inputs"] + found["outputs"]}
    expect(shapes, {"page": [-1, -1, 3], "text": [-1], "boxes": [-1, 4, 2], "score": [-1]}, "the shapes")


def add(table: Table, url: str, grpc_address: str, folder: str) -> None:
    """Adds all checks; `folder` has a page and what is written on it."""
    page = np.load(Path(folder) / "page.npy", allow_pickle=False)
    texts = (Path(folder) / "page.txt").read_text().splitlines()
    checks = {
        "examples/ocr, a page": partial(read_page, page=page, texts=texts),
        "examples/ocr, an empty page": read_empty_page,
        "examples/ocr, metadata": metadata,
    }

    async def run(kind: str, check: Any) -> None:
        async with Client(kind, url, grpc_address) as client:
            await check(client)

    for kind in KINDS:
        for name, check in checks.items():
            table.add("examples", kind, name, partial(run, kind, check))
