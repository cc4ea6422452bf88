"""A business system in a process of its own: one answer over HTTP, TLS or gRPC, hostile ones among them.

`python -m tests.lookback.checks.business KIND BEHAVIOUR [PEM]` prints its port, then each question. HTTP is
written by hand on a socket, so no library makes an answer better than it is.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc

from hongyan_client.lookback.check_handler import CheckHandler, Lookup
from hongyan_client.lookback.grpc_service import SERVICE, check_service
from hongyan_client.lookback.identity import TransactionRef
from hongyan_client.lookback.transaction_state import StateReply, TransactionState

SECRET = "a secret of the tests"
_LONG_S = 30.0


def main() -> None:
    kind, behaviour, pem = (*sys.argv[1:], "")[:3]
    if kind == "grpc":
        _serve_grpc(behaviour, pem)
    else:
        _serve_http(behaviour, pem)


def the_reply(ref: TransactionRef) -> StateReply:
    """The lookup of the honest behaviours."""
    return StateReply(TransactionState.COMMIT, ref.biz_id, fenced=True)


def _unknown(ref: TransactionRef) -> StateReply:
    return StateReply(TransactionState.UNKNOWN, ref.biz_id, "the order is being paid")


def _broken(ref: TransactionRef) -> StateReply:
    raise ConnectionError("no database")


def _other(ref: TransactionRef) -> StateReply:
    return StateReply(TransactionState.COMMIT, "another")


_LOOKUPS: dict[str, Lookup] = {"unknown": _unknown, "broken": _broken, "other_id": _other}


# ---- HTTP ------------------------------------------------------------------------------------


def _serve_http(behaviour: str, pem: str) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    context = None
    if pem:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
    print(server.getsockname()[1], flush=True)
    while True:
        plain, _ = server.accept()
        threading.Thread(target=_talk, args=(plain, context, behaviour), daemon=True).start()


def _talk(plain: socket.socket, context: ssl.SSLContext | None, behaviour: str) -> None:
    try:
        with plain if context is None else context.wrap_socket(plain, server_side=True) as wire:
            head = b""
            while b"\r\n\r\n" not in head:
                head += wire.recv(65_536) or _gone()
            _answer(wire, head.decode(), behaviour)
    except (OSError, EOFError):
        return


def _answer(wire: socket.socket, head: str, behaviour: str) -> None:
    first, *lines = head.split("\r\n\r\n")[0].split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    query = urlsplit(first.split(" ")[1]).query
    print(json.dumps({"target": first, "headers": headers}), flush=True)
    biz_id = parse_qs(query).get("biz_id", [""])[0]
    good = json.dumps({"state": "COMMIT", "biz_id": biz_id}).encode()
    if behaviour in ("honest", "unknown", "broken", "unsigned"):
        secrets = [] if behaviour == "unsigned" else [SECRET]
        lookup = _LOOKUPS.get(behaviour, the_reply)
        status, body = CheckHandler({"order": lookup}, secrets).answer(query, headers)
        wire.sendall(_response(status, body))
    elif behaviour == "drip":
        wire.sendall(_response(200, good)[: -len(good)])
        for byte in good:
            time.sleep(0.2)
            wire.sendall(bytes([byte]))
    elif behaviour == "slow":
        time.sleep(_LONG_S)
    else:
        wire.sendall(_HOSTILE[behaviour](good))


def _response(status: int, body: bytes, *fields: str) -> bytes:
    lines = (f"HTTP/1.1 {status} .", f"Content-Length: {len(body)}", "Connection: close", *fields)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


_HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "bare_200": lambda _good: _response(200, b""),
    "not_json": lambda _good: _response(200, b"COMMIT"),
    "a_list": lambda good: _response(200, b"[" + good + b"]"),
    "no_state": lambda _good: _response(200, b'{"biz_id": "1001", "ok": true}'),
    "small_state": lambda good: _response(200, good.replace(b"COMMIT", b"commit")),
    "state_list": lambda good: _response(200, good.replace(b'"COMMIT"', b'["COMMIT"]')),
    "other_id": lambda _good: _response(200, b'{"state": "COMMIT", "biz_id": "1002"}'),
    "number_id": lambda _good: _response(200, b'{"state": "COMMIT", "biz_id": 1001}'),
    "no_id": lambda _good: _response(200, b'{"state": "COMMIT"}'),
    "redirect": lambda good: _response(302, good, "Location: /elsewhere"),
    "500": lambda good: _response(500, good),
    "201": lambda good: _response(201, good),
    "over_long": lambda good: _response(200, good + b" " * 65_536),
    "endless": lambda good: _response(200, good + b" " * (2 << 20)),
    "cut": lambda good: _response(200, good)[:-3],
    "garbage": lambda _good: b"\x00\xff" * 100,
    "gone": lambda _good: b"",
}
HOSTILE = (*_HOSTILE, "broken", "slow", "drip")


def _gone() -> bytes:
    raise EOFError


# ---- gRPC ------------------------------------------------------------------------------------


def _serve_grpc(behaviour: str, pem: str) -> None:
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_service(behaviour),))
    if pem:
        text = Path(pem).read_bytes()
        port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([(text, text)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


def _service(behaviour: str) -> grpc.GenericRpcHandler:
    if behaviour in _RAW:

        def raw(_question: bytes, _context: grpc.ServicerContext) -> bytes:
            return _RAW[behaviour]()

        method: Any = grpc.unary_unary_rpc_method_handler(raw)
        return grpc.method_handlers_generic_handler(SERVICE, {"Ask": method})
    secrets = [] if behaviour == "unsigned" else [SECRET]
    return check_service(CheckHandler({"order": _LOOKUPS.get(behaviour, the_reply)}, secrets))


def _too_late() -> bytes:
    time.sleep(_LONG_S)
    return b""


_RAW: dict[str, Callable[[], bytes]] = {
    "slow": _too_late,
    "future_state": lambda: b"\x08\x07",
    "garbage": lambda: b"\xff\xff\xff",
    "over_long": lambda: b"\x1a\x80\x80\x08" + b"x" * (128 << 10),
    "bare": lambda: b"",
}


if __name__ == "__main__":
    main()
