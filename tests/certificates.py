"""Certificates for tests: an authority, and the certificates that it signs for servers and clients. openssl makes new ones in
each run."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"


@dataclass(frozen=True)
class Certificate:
    """PEM files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates.

    Args:
        folder: For the files; every authority needs one of its own.
    """

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl makes the certificates, and is not installed")
        self._folder = folder
        self.own = Certificate(folder / "authority.pem", folder / "authority.key")
        usage = "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign"
        self._openssl(f"req -x509 {_KEY} -subj /CN=authority {usage} -keyout {self.own.key} -out {self.own.certificate}")

    def sign(self, name: str) -> Certificate:
        """Makes a certificate for `name`, as a client and as a server on 127.0.0.1."""
        found = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        extensions = "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
        signer = f"-CA {self.own.certificate} -CAkey {self.own.key}"
        self._openssl(f"req -x509 {_KEY} -subj /CN={name} {extensions} {signer} -keyout {found.key} -out {found.certificate}")
        return found

    def _openssl(self, arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], check=True, capture_output=True)
