"""TLS to a server of one's own: sslmode=verify-full, with a real PostgreSQL and a CA of our own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.core.errors import SweepError
from sweep.storage.connection import Database
from tests.needs import skip_or_fail
from tests.postgres_fixture import Server

pytestmark = pytest.mark.real


def find_programs() -> Path:
    """Return a PostgreSQL that was built with TLS, as the wheel's is not: a distribution's."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        done = subprocess.run([folder / "pg_config", "--configure"], capture_output=True, text=True)
        if (folder / "initdb").exists() and "ssl" in (done.stdout or "--with-openssl"):
            return folder
    skip_or_fail("postgres", "no PostgreSQL that was built with TLS (Debian's package has it)")


def openssl(*words: str, folder: Path) -> None:
    try:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    except FileNotFoundError:
        skip_or_fail("postgres", "no openssl, which makes the certificates")


def make_authority(folder: Path, name: str) -> Path:
    """Make a certificate authority; return its certificate."""
    subject = ["-subj", f"/CN={name}", "-days", "2", "-nodes"]
    openssl(
        *("req", "-x509", "-newkey", "rsa:2048", *subject),
        *("-keyout", f"{name}.key", "-out", f"{name}.crt"),
        folder=folder,
    )
    return folder / f"{name}.crt"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server whose certificate names localhost alone, and the folder with the authorities."""
    folder = tmp_path_factory.mktemp("tls")
    make_authority(folder, "ours")
    make_authority(folder, "others")
    server = Server(folder, programs=find_programs())
    openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"),
        *("-keyout", "server.key", "-out", "server.csr"),
        folder=folder,
    )
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl(
        *("x509", "-req", "-in", "server.csr", "-CA", "ours.crt", "-CAkey", "ours.key"),
        *("-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "server.crt"),
        folder=folder,
    )
    for name in ("server.key", "server.crt"):
        target = server.data / name
        target.write_bytes((folder / name).read_bytes())
        target.chmod(0o600)
    with (server.data / "postgresql.conf").open("a") as conf:
        conf.write("ssl = on\nssl_cert_file = 'server.crt'\nssl_key_file = 'server.key'\n")
    server.start()
    yield server, folder
    server.stop()


def url_of(server: Server, host: str, mode: str, authority: Path) -> str:
    plain = server.url().replace("127.0.0.1", host)
    return f"{plain}?sslmode={mode}&sslrootcert={authority}"


def test_verify_full_connects_by_tls(tls: tuple[Server, Path]) -> None:
    """The server's certificate is of our authority and names the host: the session is encrypted."""
    server, folder = tls
    db = Database(url_of(server, "localhost", "verify-full", folder / "ours.crt"))
    rows = db.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    db.close()
    assert rows == [(True,)]


@pytest.mark.parametrize(
    ("host", "authority"),
    [("localhost", "others.crt"), ("127.0.0.1", "ours.crt"), ("localhost", "missing.crt")],
)
def test_verify_full_refuses_who_is_another(
    tls: tuple[Server, Path], host: str, authority: str
) -> None:
    """Another authority, another name, no certificate to compare with: refused, not retried."""
    server, folder = tls
    db = Database(url_of(server, host, "verify-full", folder / authority))
    waits: list[float] = []
    with pytest.raises(SweepError) as caught:
        db.retry(
            lambda one: one.execute("SELECT 1"),
            patience_s=60.0,
            on_wait=lambda s, _: waits.append(s),
        )
    db.close()
    assert "sslrootcert" in str(caught.value) or "certificate" in str(caught.value)
    assert caught.value.hint and waits == []
    assert "p@ss" not in str(caught.value) and "p%40ss" not in str(caught.value)
