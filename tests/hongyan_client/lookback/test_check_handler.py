"""The business's side of a check: signed questions in, replies out, over WSGI and ASGI."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode
from wsgiref.validate import validator

import pytest
from litestar import Litestar, asgi
from litestar.testing import TestClient

from hongyan_client.lookback.check_handler import CheckHandler
from hongyan_client.lookback.errors import NotSigned
from hongyan_client.lookback.identity import TransactionRef
from hongyan_client.lookback.signature import WINDOW_S, QuestionVerifier, signed_headers
from hongyan_client.lookback.transaction_state import StateReply, TransactionState

NOW = 1_790_000_000.0
REF = TransactionRef("order", "订单-1001", "01a20ff9aefb75d8a5a3cff73bb9120c")
QUERY = urlencode(REF._asdict())


def committed(ref: TransactionRef) -> StateReply:
    return StateReply(TransactionState.COMMIT, ref.biz_id, fenced=True)


def a_verifier(*secrets: str, at: float = NOW) -> QuestionVerifier:
    return QuestionVerifier(secrets, now=lambda: at)


def signed(secret: str = "s1", at: float = NOW) -> dict[str, str]:
    return dict(signed_headers(secret, REF, at))


def test_either_secret_is_good_while_one_is_replaced() -> None:
    verifier = a_verifier("s2", "s1")
    verifier.verify(signed("s1"), REF)
    verifier.verify(signed("s2"), REF)


@pytest.mark.parametrize(
    ("headers", "fault"),
    [
        ({}, "no signature"),
        (signed("other"), "wrong"),
        (signed(at=NOW - WINDOW_S - 1), "time"),
        (signed(at=NOW + WINDOW_S + 1), "time"),
        (signed() | {"Hongyan-Timestamp": "²"}, "time"),
        (signed() | {"Hongyan-Timestamp": "9" * 5_000}, "time"),
        (signed() | {"Hongyan-Nonce": "0" * 32}, "wrong"),
        (signed() | {"Hongyan-Nonce": "0" * 65}, "wrong"),
        (signed() | {"Hongyan-Signature": "v1=é"}, "wrong"),
    ],
)
def test_a_question_without_a_good_signature_is_refused(
    headers: dict[str, str], fault: str
) -> None:
    with pytest.raises(NotSigned, match=fault):
        a_verifier("s1").verify(headers, REF)


@pytest.mark.parametrize("field", TransactionRef._fields)
def test_a_signature_holds_for_its_own_transaction_alone(field: str) -> None:
    with pytest.raises(NotSigned, match="wrong"):
        a_verifier("s1").verify(signed(), REF._replace(**{field: "x"}))


def test_a_question_is_answered_once() -> None:
    verifier, headers = a_verifier("s1"), signed()
    verifier.verify(headers, REF)
    with pytest.raises(NotSigned, match="before"):
        verifier.verify(headers, REF)


def test_a_refused_question_leaves_its_nonce_to_the_true_one() -> None:
    verifier, headers = a_verifier("s1"), signed()
    with pytest.raises(NotSigned):
        verifier.verify(headers | {"Hongyan-Signature": "v1=0"}, REF)
    verifier.verify(headers, REF)


@pytest.mark.parametrize(
    "query",
    ["", "biz_type=order&biz_id=1", f"{QUERY}&biz_id=2", f"{QUERY[:-1]}", "a=1&" * 20 + QUERY],
)
def test_a_question_that_names_no_transaction_is_a_bad_request(query: str) -> None:
    assert CheckHandler({"order": committed}, []).answer(query, {}).status == 400


def test_a_business_type_without_a_check_is_unknown() -> None:
    found = CheckHandler({}, []).answer(QUERY, {})
    assert json.loads(found.body)["state"] == "UNKNOWN"


def test_an_error_of_the_business_is_no_decision_and_tells_nothing() -> None:
    def failing(ref: TransactionRef) -> StateReply:
        raise RuntimeError("password=4711")

    found = CheckHandler({"order": failing}, []).answer(QUERY, {})

    assert found.status == 503
    assert b"4711" not in found.body
    assert "state" not in json.loads(found.body)


@pytest.mark.parametrize("found", [None, "COMMIT", StateReply("COMMIT", "1")])  # type: ignore[arg-type]
def test_a_check_that_returns_anything_else_is_no_decision(found: Any) -> None:
    """`answer` raised an AttributeError, and the server gave a page of its own."""
    status, body = CheckHandler({"order": lambda _: found}, []).answer(QUERY, {})
    assert (status, json.loads(body)) == (503, {"error": "the check failed (TypeError)"})


def test_it_is_a_wsgi_application() -> None:
    handler, said = CheckHandler({"order": committed}, ["s1"], now=lambda: NOW), []

    def start(status: str, fields: list[tuple[str, str]], *_: Any) -> Any:
        said.append(status)
        return lambda _data: None

    environ = {
        **{f"HTTP_{name.upper().replace('-', '_')}": one for name, one in signed().items()},
        "REQUEST_METHOD": "GET",
        "QUERY_STRING": QUERY,
        "SERVER_NAME": "x",
        "SERVER_PORT": "1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.input": _Empty(),
        "wsgi.errors": _Errors(),
        "SCRIPT_NAME": "",
        "PATH_INFO": "/",
    }
    answer = validator(handler.wsgi)(environ, start)
    body = b"".join(answer)
    answer.close()  # type: ignore[attr-defined]

    assert said == ["200 OK"]
    assert json.loads(body) == {"state": "COMMIT", "biz_id": "订单-1001", "fenced": True}


def test_it_is_an_asgi_application() -> None:
    handler, sent = CheckHandler({"order": committed}, ["s1"], now=lambda: NOW), []
    headers = [(name.lower().encode(), value.encode()) for name, value in signed().items()]
    scope = {"type": "http", "query_string": QUERY.encode(), "headers": headers}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    asyncio.run(handler.asgi(scope, receive, send))

    assert sent[0]["status"] == 200
    assert json.loads(sent[1]["body"])["state"] == "COMMIT"


@pytest.mark.parametrize("path", ["/hongyan/check/", "/hongyan/check"])
def test_litestar_serves_it_as_a_mount(path: str) -> None:
    """As docs/lookback-business.md has it."""
    handler = CheckHandler({"order": committed}, ["s1"], now=lambda: NOW)
    mounted = asgi("/hongyan/check", is_mount=True, copy_scope=True)(handler.asgi)
    with TestClient(Litestar([mounted])) as client:
        found = client.get(f"{path}?{QUERY}", headers=signed(), follow_redirects=False)
    assert (found.status_code, found.json()["state"]) == (200, "COMMIT")


class _Empty:
    def read(self, size: int) -> bytes:
        return b""

    def readline(self) -> bytes:
        return b""

    def readlines(self, hint: int) -> list[bytes]:
        return []

    def __iter__(self) -> Iterable[bytes]:
        return iter(())


class _Errors:
    def flush(self) -> None: ...

    def write(self, text: str) -> None: ...

    def writelines(self, lines: Iterable[str]) -> None: ...
