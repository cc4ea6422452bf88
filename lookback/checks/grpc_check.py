"""A check over gRPC: the method Ask of the generic service `hongyan.lookback.Check`, by its name.

A status other than OK, a missed deadline, another id and a state that nobody knows are failures. The
channel keeps one connection; it uses no proxy, retries nothing and takes no service configuration from DNS.
gRPC never leaves a connection that is open and dead, so missed deadlines in a row bring a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple

import grpc

from backends.check_settings import CheckSettings
from backends.settings import SettingsError
from channels.endpoints import Endpoint
from hongyan_client.lookback import check_pb2
from hongyan_client.lookback.grpc_service import METHOD, STATES
from hongyan_client.lookback.identity import TransactionRef
from hongyan_client.lookback.signature import signed_headers
from lookback.check import Answer, CheckReply
from lookback.checks.errors import CheckFailed
from lookback.checks.http_check import detail_of, unknown_detail

_MOST: Final = 64 << 10
_DEADLINE: Final = grpc.StatusCode.DEADLINE_EXCEEDED
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MOST),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.max_reconnect_backoff_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel gets the old one's connection
)
_MISSED: Final = 3
"""Deadlines missed in a row after which the connection counts as dead."""


class _Connection(NamedTuple):
    """A channel, and the method on it."""

    channel: grpc.Channel
    ask: Any


class GrpcCheck:
    """Implements `lookback.checks.guarded.CheckQuestion`. Thread-safe; `close` ends its connection."""

    def __init__(
        self, url: Endpoint, settings: CheckSettings, now: Callable[[], float] = time
    ) -> None:
        """Connects later. Raises SettingsError for a CA file that cannot be read."""
        self._url = url
        self._credentials = _credentials(settings) if url.scheme == "grpcs" else None
        self._secret = settings.secret
        self._timeout_s = settings.timeout_s
        self._now = now
        self._lock = threading.Lock()  # guards the writes of the three below
        self._connection = self._opened()
        self._left: _Connection | None = None
        """The one before. Its calls end by their deadlines, before the present one can be left."""
        self._missed = 0

    def ask(self, ref: TransactionRef) -> CheckReply:
        """Asks once. Raises CheckFailed."""
        signed = signed_headers(self._secret, ref, self._now())
        metadata = [(name.lower(), value) for name, value in signed]
        connection = self._connection
        try:
            reply = connection.ask(
                check_pb2.Question(**ref._asdict()), timeout=self._timeout_s, metadata=metadata
            )
        except grpc.RpcError as exc:
            error: Any = exc
            self._judge(connection, answered=error.code() is not _DEADLINE)
            raise CheckFailed(_failure(exc)) from exc
        self._judge(connection, answered=True)
        return _reply_of(reply, ref.biz_id)

    def close(self) -> None:
        """Ends the connections; idempotent."""
        with self._lock:
            for one in (self._connection, self._left):
                if one is not None:
                    one.channel.close()

    def _judge(self, connection: _Connection, *, answered: bool) -> None:
        """Counts missed deadlines, and exchanges a connection that is dead."""
        with self._lock:
            if connection is not self._connection:
                return
            self._missed = 0 if answered else self._missed + 1
            if self._missed >= _MISSED:
                self._missed = 0
                if self._left is not None:
                    self._left.channel.close()
                self._left, self._connection = connection, self._opened()

    def _opened(self) -> _Connection:
        channel = _channel(self._url, self._credentials)
        ask = channel.unary_unary(
            METHOD,
            request_serializer=check_pb2.Question.SerializeToString,
            response_deserializer=check_pb2.Reply.FromString,
        )
        return _Connection(channel, ask)


def _channel(url: Endpoint, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    host = f"[{url.host}]" if ":" in url.host else url.host
    target = f"dns:///{host}:{url.port}"
    if credentials is None:
        return grpc.insecure_channel(target, _OPTIONS)
    return grpc.secure_channel(target, credentials, _OPTIONS)


def _credentials(settings: CheckSettings) -> grpc.ChannelCredentials:
    try:
        roots = Path(settings.ca_file).read_bytes() if settings.ca_file else None
    except OSError as exc:
        raise SettingsError(f"{settings.ca_file}: {exc.strerror}") from exc
    return grpc.ssl_channel_credentials(roots)


def _reply_of(reply: check_pb2.Reply, biz_id: str) -> CheckReply:
    state = STATES.get(reply.state)
    if state is None:
        raise CheckFailed(f"its answer has the state {reply.state}, which is none")
    if reply.biz_id != biz_id:
        raise CheckFailed("its answer is for another biz_id, or for none")
    answer = Answer(state.value)
    if answer is Answer.UNKNOWN:
        return CheckReply(answer, unknown_detail(reply.detail))
    return CheckReply(answer, fenced=reply.fenced)


def _failure(exc: Any) -> str:
    return detail_of(f"gRPC {exc.code().name}: {exc.details() or 'no detail'}")
