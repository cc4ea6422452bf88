"""The transport for mail: sessions of smtplib behind the same interface as
channels/http_client/transport.py.

What the request and the response look like: channels/smtp_client/mail_request.py. As over HTTP, `send`
answers with a value whatever happens, and `extensions["timeout"]["total"]` (seconds) covers the whole
call, from resolving to the reply to the final dot; its other keys are limits of single steps
(channels/smtp_client/timing.py). A server may take minutes for that one (RFC 5321 §4.5.3.2.6 says ten),
and what is cut off there is in doubt.

Such a call may outlive the lease under which it began. So `extensions["withdrawn"]` is asked while the
server says nothing and right before the dot, until which nobody can have acted on the message.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from math import inf
from time import monotonic
from typing import Final, cast

import httpx

from channels.channel import Failure, Phase
from channels.http_client.failures import WITHDRAWN, BadRequest, late, withdrawn
from channels.http_client.response import LeanResponse
from channels.idle_pool import IdlePool
from channels.smtp_client.host_names import is_loopback
from channels.smtp_client.mail_request import (
    DEFAULT_PORTS,
    NO_CODE,
    Envelope,
    SmtpReply,
    SmtpReplySet,
    SmtpStage,
    envelope_of,
    written_told,
)
from channels.smtp_client.session import SessionLost, SmtpSession, SmtpTarget
from channels.smtp_client.timing import Timing
from channels.tls.context import CaBundles

DEFAULT_IDLE_S: Final = 60.0
_RESOLVERS: Final = 2
"""Threads that ask for addresses: the system's resolver knows no deadline, and a call must keep to its."""


class SmtpTransport:
    """Safe from any number of threads. One kept session per call in flight and route."""

    def __init__(
        self,
        *,
        ca_bundle: str = "",
        idle_s: float = DEFAULT_IDLE_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._trust = CaBundles(ca_bundle)
        self._clock = clock
        self._idle: IdlePool[SmtpTarget, SmtpSession] = IdlePool("smtp-janitor", idle_s, clock)
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="smtp-names")

    @property
    def beat(self) -> float:
        """Now: nothing here goes round."""
        return monotonic()

    def begin(
        self, request: httpx.Request, done: Callable[[LeanResponse | Failure], None]
    ) -> LeanResponse | Failure:
        """`send`: a dialogue of many lines is waited for by the calling thread."""
        return self.send(request)

    def send(self, request: httpx.Request) -> LeanResponse | Failure:
        """One message on the wire, never two. Raises only BadRequest, and then nothing was sent."""
        envelope = envelope_of(request)
        route = _route(request, envelope)
        if self._idle.closed.is_set():
            return Failure(Phase.NOT_WRITTEN, "closed", "the transport is closed")
        started = monotonic()
        timing = Timing(request.extensions.get("timeout", {}), started)
        told = self._tell(route, envelope, request, timing)
        if isinstance(told, Failure):
            return told
        fields = [(b"Content-Type", b"application/json")]
        seconds = monotonic() - started
        return LeanResponse(told.reply.code, fields, written_told(told), request, seconds)

    def close(self) -> None:
        """Close every idle session; those in use close when their call ends. Idempotent."""
        self._idle.close()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    @property
    def idle(self) -> int:
        """Kept sessions that no call is using."""
        return self._idle.size

    def sweep(self) -> None:
        """Close what has been idle for too long; the janitor calls it, and so may anyone."""
        self._idle.sweep()

    def _tell(
        self, route: SmtpTarget, envelope: Envelope, request: httpx.Request, timing: Timing
    ) -> SmtpReplySet | Failure:
        session: SmtpSession | None = None
        ask = request.extensions.get("withdrawn")
        try:
            session = self._kept(route, timing)
            if session is None:
                session = SmtpSession(route, self._trust.context(route.ca_file), self._resolve)
                refused = session.open(timing, ask)
                if refused is not None:
                    session.close()
                    return refused
            if ask is None and monotonic() > request.extensions.get("not_after", inf):
                return late()
            if ask is not None and (why := ask()):
                return withdrawn(why)
            return session.transact(envelope, request.read(), timing, ask)
        except SessionLost as exc:
            return _lost(session, exc)
        except OSError as exc:
            return Failure(Phase.NOT_WRITTEN, "tls", f"the CA file cannot be read: {exc}")
        except ValueError as exc:  # smtplib's word for a line break in a command
            raise BadRequest(str(exc)) from exc
        finally:
            if session is not None:
                self._give_back(route, session)

    def _kept(self, route: SmtpTarget, timing: Timing) -> SmtpSession | None:
        """A session that lives; those that died meanwhile are put away."""
        while (session := self._idle.take(route)) is not None:
            if session.renew(timing):
                return session
            session.close()
        return None

    def _give_back(self, route: SmtpTarget, session: SmtpSession) -> None:
        session.used_at = self._clock()
        if session.usable:
            self._idle.put(route, session)
        else:
            session.close()

    def _resolve(
        self, host: str, port: int, timeout_s: float
    ) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
        """Raises OSError, also when the transport is closed meanwhile."""
        try:
            asked = self._resolvers.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            found = asked.result(max(timeout_s, 0.0))
        except (RuntimeError, CancelledError) as exc:
            raise OSError("the transport is closed") from exc
        return [(family, cast("tuple[str, int]", address)) for family, _, _, _, address in found]


def _lost(session: SmtpSession | None, exc: SessionLost) -> SmtpReplySet | Failure:
    """What is known of a message whose session was lost: who was refused before the dot was."""
    if exc.code == WITHDRAWN:
        return withdrawn(str(exc))
    if session is None or not session.written:
        return Failure(Phase.NOT_WRITTEN, exc.code, str(exc))
    if all(reply.positive for reply in session.receivers):
        return Failure(Phase.WRITTEN, exc.code, str(exc))
    return SmtpReplySet(
        SmtpStage.FINAL, SmtpReply(NO_CODE, str(exc)), session.receivers, lost=exc.code
    )


def _route(request: httpx.Request, envelope: Envelope) -> SmtpTarget:
    url = request.url
    if url.scheme == "smtp" and envelope.tls == "none" and not is_loopback(url.host):
        raise BadRequest(f"{url.host} is not this machine: mail for it must go over TLS")
    port = url.port or DEFAULT_PORTS[url.scheme]
    ca_file = request.extensions.get("ca_file", "")
    return SmtpTarget(
        url.scheme, url.host, port, ca_file, envelope.login, envelope.tls, envelope.hello
    )
