"""A cluster of two raylets that speak TLS: the same bits, and nobody gets in without its certificate."""

import contextlib
import datetime
import ipaddress
import os
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import privmix as pm

pytestmark = pytest.mark.thorough

_SECONDS = 300

# A driver, as a user would write it; the raylets are its children, and end with it.
DRIVER = """
import sys
from ray.cluster_utils import Cluster
import numpy as np
import privmix as pm

node = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=node)
cluster.add_node(**node)
x, y = np.load(sys.argv[1])["x"], np.load(sys.argv[1])["y"]
options = dict(epsilon=4.0, delta=1e-4, classes=2, features="identity", design=pm.designs.Poisson(8), seed=1)
pm.release((x, y), engine=f"ray:address={cluster.address}", out=sys.argv[2], **options)
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.shutdown()
"""
STRANGER = """
import sys
import ray

ray.init(address=sys.argv[1], log_to_driver=False)
print("joined")
"""


def certificate(folder: Path, address: str) -> dict[str, str]:
    """A key and a certificate that signs itself, for one address; and the settings that make Ray use them."""
    x509 = pytest.importorskip("cryptography.x509", reason="certificates need cryptography")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "privmix")])
    places = [x509.IPAddress(ipaddress.ip_address(one)) for one in sorted({address, "127.0.0.1"})]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    files = {"SERVER_CERT": "cert.pem", "SERVER_KEY": "key.pem", "CA_CERT": "cert.pem"}
    return {"RAY_USE_TLS": "1", **{f"RAY_TLS_{name}": str(folder / file) for name, file in files.items()}}


def test_two_raylets_that_speak_tls_make_the_same_bits_and_let_nobody_else_in(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="the Ray engine needs privmix[ray]")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3000, 4)).astype(np.float32), np.arange(3000) % 2
    np.savez(tmp_path / "data.npz", x=x, y=y)
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "of-this-test-" + os.urandom(16).hex()}
    settings = {**os.environ, **own, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    settings.pop("RAY_ADDRESS", None)
    tls = certificate(tmp_path, ray.util.get_node_ip_address())
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path / "data.npz"), str(tmp_path / "REL")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**settings, **tls},
    ) as driver:
        # Machines that do not take each other's certificates try for ever.
        end = threading.Timer(_SECONDS, driver.kill)
        end.start()
        try:
            assert driver.stdout is not None
            address = driver.stdout.readline().strip()
            assert address, "the driver did not get as far as a release"
            host, _, port = address.rpartition(":")
            # Whoever asks gets the cluster's certificate, and without TLS, with the right token, gets nowhere.
            assert ssl.get_server_certificate((host, int(port))) == (tmp_path / "cert.pem").read_text()
            stranger = subprocess.run(
                [sys.executable, "-c", STRANGER, address],
                env={**settings, "RAY_gcs_rpc_server_reconnect_timeout_s": "3"},
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            assert "joined" not in stranger.stdout
            assert stranger.returncode != 0
        finally:
            end.cancel()
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                driver.communicate("\n", timeout=_SECONDS)
            driver.kill()
    options = {"epsilon": 4.0, "delta": 1e-4, "classes": 2, "features": "identity", "seed": 1}
    alone = pm.release((x, y), design=pm.designs.Poisson(8), **options)
    np.testing.assert_array_equal(pm.load(tmp_path / "REL").x, alone.x)
