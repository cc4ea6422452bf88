"""Whom we trust."""

from __future__ import annotations

import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from channels.tls.context import CaBundles
from simulator.servers.certificates import Authority


def authority(folder: Path) -> str:
    folder.mkdir()
    return str(Authority(folder).file)


def test_every_thread_that_asks_first_gets_the_same_context(tmp_path: Path) -> None:
    extras = [authority(tmp_path / str(number)) for number in range(4)]
    trust = CaBundles()
    with ThreadPoolExecutor(16) as threads:
        contexts = list(threads.map(trust.context, extras * 8))
    assert len(set(contexts)) == len(extras)


def test_an_added_authority_stands_beside_the_public_ones(tmp_path: Path) -> None:
    trust = CaBundles()
    public = trust.context().cert_store_stats()["x509_ca"]
    assert public > 50
    added = trust.context(authority(tmp_path / "a")).cert_store_stats()["x509_ca"]
    assert added == public + 1


def test_chain_and_name_are_always_verified() -> None:
    context = CaBundles().context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("text", [None, b"", b"-----\xff not UTF-8"], ids=["none", "empty", "odd"])
def test_a_file_without_authorities_is_an_error(tmp_path: Path, text: bytes | None) -> None:
    file = tmp_path / "a.pem"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(OSError):  # noqa: PT011 (whichever it is)
        CaBundles().context(str(file))


def test_keys_are_not_written_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    assert CaBundles().context().keylog_filename is None
