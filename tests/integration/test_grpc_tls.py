# pyright: basic
# Generated messages and stubs have no types.
"""gRPC over TLS: which servers clients trust, which clients the server trusts, and a certificate that is renewed in place."""

import shutil
from pathlib import Path

import grpc
import grpc.aio
import pytest

from dyorc.config import GatewayConfig
from dyorc.protocol import inference_pb2 as pb
from dyorc.protocol.inference_pb2_grpc import GRPCInferenceServiceStub
from tests.certificates import Authority, Certificate
from tests.integration.stack import running
from tests.workflows import tensors


def _config(server: Certificate, roots: Path | None = None) -> GatewayConfig:
    return GatewayConfig(
        port=0,
        drain_timeout_s=1,
        tls_certificate_file=str(server.certificate),
        tls_key_file=str(server.key),
        tls_client_roots_file="" if roots is None else str(roots),
    )


async def _is_live(address: str, trusted: Path, own: Certificate | None = None) -> bool:
    """Asks over a new connection.

    Raises:
        grpc.aio.AioRpcError: If there is none.
    """
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(address, _credentials(trusted, own), options=options) as channel:
        return (await GRPCInferenceServiceStub(channel).ServerLive(pb.ServerLiveRequest(), timeout=20)).live


def _credentials(trusted: Path, own: Certificate | None) -> grpc.ChannelCredentials:
    key, chain = (None, None) if own is None else (own.key.read_bytes(), own.certificate.read_bytes())
    return grpc.ssl_channel_credentials(trusted.read_bytes(), key, chain)


def _authority(folder: Path) -> Authority:
    folder.mkdir()
    return Authority(folder)


async def test_clients_that_trust_the_certificate_are_served_also_with_a_renewed_one(tmp_path: Path) -> None:
    before, after = _authority(tmp_path / "before"), _authority(tmp_path / "after")
    server = before.sign("server")
    async with running([tensors.affine], gateway=_config(server), grpc=True, num_replicas=0) as stack:
        assert await _is_live(stack.grpc_address, before.own.certificate)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _is_live(stack.grpc_address, after.own.certificate)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        renewed = after.sign("server")
        shutil.copy(renewed.key, server.key)
        shutil.copy(renewed.certificate, server.certificate)
        assert await _is_live(stack.grpc_address, after.own.certificate)


async def test_clients_need_a_certificate_of_the_configured_authority(tmp_path: Path) -> None:
    authority, other = _authority(tmp_path / "one"), _authority(tmp_path / "other")
    gateway = _config(authority.sign("server"), authority.own.certificate)
    async with running([tensors.affine], gateway=gateway, grpc=True, num_replicas=0) as stack:
        assert await _is_live(stack.grpc_address, authority.own.certificate, authority.sign("client"))
        for own in (None, other.sign("client")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _is_live(stack.grpc_address, authority.own.certificate, own)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_clients_without_tls_are_not_served(tmp_path: Path) -> None:
    server = _authority(tmp_path / "one").sign("server")
    async with (
        running([tensors.affine], gateway=_config(server), grpc=True, num_replicas=0) as stack,
        grpc.aio.insecure_channel(stack.grpc_address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError):
            await GRPCInferenceServiceStub(channel).ServerLive(pb.ServerLiveRequest(), timeout=5)
