"""Secrets among the properties of librdkafka, which itself knows those that its log must not have."""

from __future__ import annotations

import ctypes
import logging
import re
from pathlib import Path
from typing import Final

import confluent_kafka
import pytest

from backends.settings import SECRETS

NO_SECRETS: Final = {
    "sasl.oauthbearer.assertion.private.key.file": "a path",
    "sasl.oauthbearer.config": "claims of a token that nobody signs",
    "sasl.username": "a name",
    "ssl.ca.pem": "a certificate",
    "ssl.key.location": "a path",
}
"""Properties that librdkafka keeps out of its log and that the file may hold, with the reason."""
REDACTED: Final = re.compile(r"  (\S+) = \[redacted\]")
ALIASES: Final = {
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret"
}
"""Other names, which librdkafka logs as the second one."""
TEXT: Final = "text"


class Lines(logging.Handler):
    """Keeps what a client logs."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def text_properties(folder: Path) -> list[str]:
    """Returns the names of librdkafka's properties that are texts, out of the table that it prints."""
    maps = Path("/proc/self/maps")
    if not maps.is_file():
        pytest.skip("only Linux says where the library is")
    path = next(line.split()[-1] for line in maps.read_text().splitlines() if "librdkafka" in line)
    library, libc = ctypes.CDLL(path), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    table = folder / "properties"
    file = ctypes.c_void_p(libc.fopen(str(table).encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    return [
        line.partition("|")[0].strip()
        for line in table.read_text("utf-8").splitlines()
        if "*Type: string*" in line
    ]


def redacted(name: str) -> set[str]:
    """Returns the properties that the log of a client with this one keeps to itself."""
    lines, log = Lines(), logging.getLogger(f"{__name__}.{name}")
    log.addHandler(lines)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    settings = {"bootstrap.servers": "127.0.0.1:1", "debug": "conf", name: TEXT}
    try:
        confluent_kafka.Producer(settings, logger=log).poll(0)
    except confluent_kafka.KafkaException:
        return set()  # it reads a file of this name, or checks the text
    return {found[1] for text in lines.texts if (found := REDACTED.search(text))}


def test_each_property_that_librdkafka_keeps_out_of_its_log_is_a_secret(tmp_path: Path) -> None:
    found: set[str] = set()
    for name in text_properties(tmp_path):
        found |= redacted(name)
    secrets = {path[-1] for path in SECRETS if path[:2] == ("kafka", "client")}
    assert found == (secrets | set(NO_SECRETS)) - set(ALIASES)


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_a_secret_is_one_under_its_other_name(alias: str, name: str) -> None:
    assert redacted(alias) == {name}
