"""TLS in front of the PostgreSQL of the tests, which is built without it: certificates, and a server that ends TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.proxy import pass_on
from tests.support.serving import listening

_SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"  # the first message of a client that wants TLS
_REFUSAL = b"SFATAL\x00VFATAL\x00C28000\x00Mno pg_hba.conf entry for host, no encryption\x00\x00"


class Authority:
    """A certificate authority of its own. ``certificate`` is what clients trust."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / name
        self._folder.mkdir(parents=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.certificate = self._folder / "ca.pem"
        self.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def server_context(self, *hosts: str) -> ssl.SSLContext:
        """The side of a server with a certificate for these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        signed = _builder(_name("server"), self._name, key).add_extension(names, critical=False)
        chain = self._folder / "server.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain.write_bytes(private + _pem(signed.sign(self._key, hashes.SHA256())))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        return context


@asynccontextmanager
async def tls_in_front(url: str, context: ssl.SSLContext) -> AsyncIterator[str]:
    """The URL of a PostgreSQL server behind TLS, without options of TLS. Who speaks without TLS is refused."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    (folder,) = query.pop("host")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _serve(reader, writer, Path(folder) / ".s.PGSQL.5432", context)
        except (OSError, asyncio.IncompleteReadError):  # a client that does not trust the certificate goes away
            pass
        finally:
            writer.transport.abort()

    async with listening(serve) as listener:
        netloc = f"{parts.username}@127.0.0.1:{listener.port}"
        yield urlunsplit(parts._replace(netloc=netloc, query=urlencode(query, doseq=True)))


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, socket: Path, context: ssl.SSLContext
) -> None:
    first = await reader.readexactly(8)
    if first != _SSL_REQUEST:
        writer.write(b"E" + (len(_REFUSAL) + 4).to_bytes(4, "big") + _REFUSAL)
        await writer.drain()
        return
    writer.write(b"S")
    await writer.drain()
    await writer.start_tls(context)
    there, back = await asyncio.open_unix_connection(socket)
    try:
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))
    finally:
        back.transport.abort()


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
