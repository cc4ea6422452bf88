"""A certificate authority of the test's own."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


class Authority:
    """Signs server certificates; `file` is what a client must trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
        certificate = self._sign(self._name, self._key, x509.BasicConstraints(True, None))
        self.file = folder / "authority.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, host: str) -> ssl.SSLContext:
        """A server's side for that host name."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = self._sign(name, key, x509.SubjectAlternativeName([x509.DNSName(host)]))
        file = self._folder / f"{host}.pem"
        file.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(extension, critical=False)
            .sign(self._key, hashes.SHA256())
        )
