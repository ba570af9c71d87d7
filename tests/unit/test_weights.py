"""Weights from a safetensors file: the file's own pages, in a module that was made without any."""

import ctypes
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import dyorc


class Scaled(nn.Module):
    """Computes with a weight, and with a table that it does not save."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.register_buffer("table", torch.arange(64.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.table


def _mapped_kb(path: Path) -> int:
    """Returns how much of a file this process has mapped."""
    regions = Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split()[0].split("-") for line in regions if line.endswith(str(path))]
    return sum(int(end, 16) - int(start, 16) for start, end in spans) // 1024


def test_a_module_computes_with_the_pages_of_the_file(tmp_path: Path) -> None:
    trained = nn.Sequential(nn.Linear(1024, 1024), nn.Dropout())
    path = tmp_path / "net.safetensors"
    save_file(trained.state_dict(), path)
    loaded = dyorc.load_module(lambda: nn.Sequential(nn.Linear(1024, 1024), nn.Dropout()), path)
    x = torch.ones(2, 1024)
    assert torch.equal(loaded(x), trained.eval()(x)), "a module that is trained would drop"
    assert not loaded(x).requires_grad
    assert _mapped_kb(path) >= 4 * 1024
    first, *_ = loaded.parameters()
    addresses = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if str(path) in line]
    assert any(int(start, 16) <= first.data_ptr() < int(end, 16) for start, end in addresses)


def test_what_a_module_computes_and_does_not_save_is_there(tmp_path: Path) -> None:
    trained = Scaled()
    path = tmp_path / "net.safetensors"
    save_file(trained.state_dict(), path)
    loaded = dyorc.load_module(Scaled, path)
    x = torch.ones(2, 64)
    assert torch.equal(loaded(x), trained(x))


def test_weights_of_another_module_are_named(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save_file({"other": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"net.safetensors are not those of the module: (?s:.)*linear.weight"):
        dyorc.load_module(Scaled, path)
    path.write_bytes(b"no weights")
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        dyorc.load_module(Scaled, path)
    with pytest.raises(FileNotFoundError):
        dyorc.load_module(Scaled, tmp_path / "nowhere")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read as another user")
def test_a_file_that_only_its_owner_may_read_is_not_called_missing(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save_file(Scaled().state_dict(), path)
    libc = ctypes.CDLL(None)
    libc.setfsuid(65534)  # of this thread alone
    try:
        with pytest.raises(PermissionError, match=r"net\.safetensors"):
            dyorc.load_module(Scaled, path)
    finally:
        libc.setfsuid(0)
