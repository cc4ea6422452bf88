"""The transport for mail: smtplib's sessions behind the interface of channels/http_client/transport.py.

channels/smtp_client/mail_request.py describes the request and the response. As over HTTP, `send` always
returns a value. `extensions["timeout"]["total"]` (seconds) covers the whole call, from resolving to the
reply to the final dot. Its other keys are limits of single steps (channels/smtp_client/timing.py). A server
may take ten minutes for that reply (RFC 5321 §4.5.3.2.6), and a call cut off there is in doubt.

Such a call may outlive the lease under which it began. So `extensions["withdrawn"]` is called while the
server is silent and right before the dot. Until the dot no server can have acted on the message.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Final

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
from channels.smtp_client.name_lookups import NameLookups
from channels.smtp_client.session import SessionLost, SmtpSession, SmtpTarget
from channels.smtp_client.timing import Timing
from channels.tls.context import CaBundles

DEFAULT_IDLE_S: Final = 60.0


class SmtpTransport:
    """Thread-safe. One kept session per call in flight and route."""

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
        self._names = NameLookups()

    @property
    def beat(self) -> float:
        """Now: no loop runs here."""
        return monotonic()

    def begin(
        self, request: httpx.Request, done: Callable[[LeanResponse | Failure], None]
    ) -> LeanResponse | Failure:
        """As `send`: the calling thread waits for the whole dialogue."""
        return self.send(request)

    def send(self, request: httpx.Request) -> LeanResponse | Failure:
        """Sends one message, never two. Raises only BadRequest: then nothing was sent."""
        envelope = envelope_of(request)
        route = _route(request, envelope)
        if self._idle.closed.is_set():
            return Failure(Phase.NOT_WRITTEN, "closed", "the transport is closed")
        started = monotonic()
        timing = Timing(request.extensions.get("timeout", {}), started)
        replies = self._tell(route, envelope, request, timing)
        if isinstance(replies, Failure):
            return replies
        fields = [(b"Content-Type", b"application/json")]
        seconds = monotonic() - started
        return LeanResponse(replies.reply.code, fields, written_told(replies), request, seconds)

    def close(self) -> None:
        """Closes every idle session; those in use close when their call ends. Idempotent."""
        self._idle.close()
        self._names.close()

    @property
    def idle(self) -> int:
        """Number of kept sessions that no call is using."""
        return self._idle.size

    def sweep(self) -> None:
        """Closes sessions that were idle for too long; the janitor calls it, and any thread may."""
        self._idle.sweep()

    def _tell(
        self, route: SmtpTarget, envelope: Envelope, request: httpx.Request, timing: Timing
    ) -> SmtpReplySet | Failure:
        session: SmtpSession | None = None
        ask = request.extensions.get("withdrawn")
        try:
            session = self._kept(route, timing)
            if session is None:
                context = self._trust.context(route.ca_file)
                session = SmtpSession(route, context, self._names.addresses)
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
        except ValueError as exc:  # smtplib's error for a line break in a command
            raise BadRequest(str(exc)) from exc
        finally:
            if session is not None:
                self._give_back(route, session)

    def _kept(self, route: SmtpTarget, timing: Timing) -> SmtpSession | None:
        """Returns a live session; None without one. Closes dead ones."""
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


def _lost(session: SmtpSession | None, exc: SessionLost) -> SmtpReplySet | Failure:
    """Returns the result of a message whose session was lost, with the receivers refused before the dot."""
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
