"""`kafka.client` of hongyan.toml, which names properties of librdkafka, in the words of the Java client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from backends.kafka.config import check_client
from backends.settings import KafkaSettings, SettingsError

Values = Mapping[str, str | int | float | bool]

_SAME: Final = {
    "security.protocol": "security.protocol",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "client.dns.lookup": "client.dns.lookup",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.kerberos.service.name": "sasl.kerberos.service.name",
    "ssl.cipher.suites": "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "ssl.key.password": "ssl.key.password",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
}
_LOGIN: Final = (
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.method",
)
_PEM_FILES: Final = {
    "ssl.ca.location": ("ssl.truststore", "ssl.truststore.certificates"),
    "ssl.certificate.location": ("ssl.keystore", "ssl.keystore.certificate.chain"),
    "ssl.key.location": ("ssl.keystore", "ssl.keystore.key"),
}
_PEM_TEXTS: Final = {
    "ssl.ca.pem": ("ssl.truststore", "ssl.truststore.certificates"),
    "ssl.certificate.pem": ("ssl.keystore", "ssl.keystore.certificate.chain"),
    "ssl.key.pem": ("ssl.keystore", "ssl.keystore.key"),
}
_UNTRUSTED: Final = ("security.", "sasl.", "ssl.", "enable.ssl.")
"""Beginnings of properties of security; others only tune librdkafka."""
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BEARER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_BEARER_HANDLER: Final = (
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
)


def kafka_options(settings: KafkaSettings) -> dict[str, str]:
    """Returns the options of Spark's Kafka source. Raises SettingsError for a property of security that
    the Java client has no counterpart for. PEM files go in as texts: executors have no such files."""
    check_client(settings.client)
    found = {"bootstrap.servers": settings.bootstrap, "isolation.level": "read_committed"}
    for name, value in settings.client.items():
        found |= _translated(name, str(value))
    if any(name in settings.client for name in _LOGIN):
        found |= _login(settings.client, found.get("sasl.mechanism", "").upper())
    return {f"kafka.{name}": value for name, value in found.items()}


def _translated(name: str, value: str) -> dict[str, str]:
    if name in _SAME:
        return {_SAME[name]: _algorithm(value) if name.endswith("algorithm") else value}
    if name in _PEM_FILES:
        store, property_ = _PEM_FILES[name]
        return {f"{store}.type": "PEM", property_: _text_of(name, value)}
    if name in _PEM_TEXTS:
        store, property_ = _PEM_TEXTS[name]
        return {f"{store}.type": "PEM", property_: value}
    if name in _LOGIN or not name.startswith(_UNTRUSTED):
        return {}
    raise SettingsError(
        f"kafka.client: {name!r} has no counterpart in Spark's Kafka client; use another property"
    )


def _algorithm(value: str) -> str:
    return "" if value == "none" else value


def _text_of(name: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"kafka.client: {name}: {path} is no PEM file: {exc}") from exc


def _login(client: Values, mechanism: str) -> dict[str, str]:
    if mechanism == "OAUTHBEARER":
        names = (("clientId", "client.id"), ("clientSecret", "client.secret"), ("scope", "scope"))
        given = {ours: client.get(f"sasl.oauthbearer.{theirs}") for ours, theirs in names}
        return {
            "sasl.jaas.config": _jaas(_BEARER, given),
            "sasl.login.callback.handler.class": _BEARER_HANDLER,
        }
    module = _SCRAM if mechanism.startswith("SCRAM") else _PLAIN
    given = {"username": client.get("sasl.username"), "password": client.get("sasl.password")}
    return {"sasl.jaas.config": _jaas(module, given)}


def _jaas(module: str, options: Mapping[str, object]) -> str:
    given = (f'{name}="{_quoted(str(value))}"' for name, value in options.items() if value)
    return f"{module} required {' '.join(given)};"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
