"""Where OpenSSL's session is found, and where it is not looked for."""

import ssl
from types import SimpleNamespace
from typing import cast

import pytest

from channels.tls import records as tls_records
from channels.tls.records import records_of

MOST = 16 << 10


def session(host: str = "provider.test") -> ssl.SSLObject:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    return ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=host)


def test_the_session_of_this_python_is_found() -> None:
    tls = session()
    assert records_of(tls, MOST) is not tls


def test_each_session_is_its_own() -> None:
    one, other = session(), session()
    found = [tls_records._session_of(tls) for tls in (one, other)]
    assert all(found)
    assert found[0] != found[1]


def test_an_object_of_another_context_is_not_looked_into() -> None:
    tls = session()
    stranger = SimpleNamespace(_sslobj=tls._sslobj, context=session().context)  # type: ignore[attr-defined]
    assert tls_records._session_of(cast(ssl.SSLObject, stranger)) == 0


@pytest.mark.parametrize("inner", [None, object(), 1 << 400, ssl.MemoryBIO()])
def test_an_object_of_another_kind_is_not_looked_into(inner: object) -> None:
    stranger = SimpleNamespace(_sslobj=inner, context=session().context)
    assert tls_records._session_of(cast(ssl.SSLObject, stranger)) == 0


def test_without_the_librarys_functions_ssl_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_records, "_functions", None)
    tls = session()
    assert records_of(tls, MOST) is tls
