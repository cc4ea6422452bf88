"""The simulator's mail server: a listener beside the HTTP one, with the same ledger and rules.

aiosmtpd speaks; this module decides and keeps. Without a certificate it offers no STARTTLS; with one,
STARTTLS must come before all else. AUTH is required, with the credentials `user` and `password` of `smtp`.

Rules select by the path `/smtp/<MAIL FROM>` and the first receiver. Each message meets one fate:

    codes             `550`: to the final dot, or where that reply belongs (535 to AUTH, 530 to MAIL);
                      `rcpt:452`, `data:451`, `mail:421`, `auth:454`, `hello:554`, `final:421`: there
    receiver_codes    to one receiver's RCPT
    errors            a status is the answer of something else than a mail server to the final dot
    reset, close, hang, drip, drop    after the final dot

A code may be a whole reply: `mail:450 4.7.1 Error: too much mail from 192.0.2.1`. Silences before the
greeting, each command's reply and the one to the dot are options (`smtp_greeting_ms` and the like).

EHLO and AUTH come before any address is known. Their codes are drawn with the path `/smtp/` and no
receiver, once a connection; a later message on it gets them as the reply to MAIL.

The 250 to the final dot leaves when the record of every receiver is on disk. A message's id is its
Message-ID's part before the @.
"""

# ruff: noqa: N802 (aiosmtpd finds its hooks by these names)
from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from time import time
from typing import Any, Final, cast

from aiosmtpd.smtp import MISSING, SMTP, AuthResult, LoginPassword
from aiosmtpd.smtp import Envelope as Letter
from aiosmtpd.smtp import Session as Visit

from simulator.faults import ConnectionEnd, FaultDecision, receiver_code
from simulator.ledger import LedgerRecord
from simulator.options import SimulatorOptions
from simulator.provider import Provider
from simulator.servers.smtp_replies import (
    BEFORE_MAIL,
    BEFORE_RCPT,
    answer_of,
    read_letter,
    staged,
    to_dot,
    worded,
)
from simulator.servers.tls_server import server_context
from simulator.wire import ID, SECRET

NAME: Final = "smtp"
_MS: Final = 1_000
_DIGEST: Final = 16
_MAX_SIZE: Final = 32 << 20
_MAX_RECEIVERS: Final = 100
"""RFC 5321 §4.5.3.1.8: a server takes at least so many; this one takes no more."""
_NO_LINGER: Final = struct.pack("ii", 1, 0)
logging.getLogger("mail.log").setLevel(logging.ERROR)  # aiosmtpd warns of its own deprecations


class SmtpHandler(SMTP):
    """One connection; `path` and `fate` belong to the message under way."""

    messages = 0
    early: tuple[str, str] | None = None
    """Stage and code, drawn with the first EHLO."""
    path = ""
    fate: FaultDecision | None = None
    """Drawn with the message's first RCPT."""

    def __init__(
        self, office: SmtpServer, greeting_s: float, command_s: float, **settings: Any
    ) -> None:
        super().__init__(office, **settings)
        self._greeting_s = greeting_s
        self._command_s = command_s

    async def _handle_client(self) -> None:
        """As aiosmtpd's, after the silence before the greeting."""
        await asyncio.sleep(self._greeting_s)
        await super()._handle_client()

    async def smtp_DATA(self, arg: str) -> None:
        """As aiosmtpd's, unless the message's fate is to be refused before its content."""
        await asyncio.sleep(self._command_s)
        stage, code = staged(self.fate)
        if stage == "data" and self.envelope is not None and self.envelope.rcpt_tos:
            await self.push(worded(code))
        else:
            await super().smtp_DATA(arg)


class SmtpServer:
    """aiosmtpd's handler: one for all connections. Everything runs on the loop's thread."""

    def __init__(self, provider: Provider, options: SimulatorOptions) -> None:
        self._provider = provider
        given = options.credentials.get(NAME, {})
        self._user = given.get("user", ID).encode()
        self._password = given.get("password", SECRET).encode()
        self._greeting_s = options.smtp_greeting_ms / _MS
        self._command_s = options.smtp_command_ms / _MS
        self._final_ms = options.smtp_final_ms
        self._turns: dict[str, int] = {}
        self._certificate = server_context(options.smtp_certificate)

    def open_door(self) -> SmtpHandler:
        """Returns the connection for `create_server`."""
        return SmtpHandler(
            self,
            self._greeting_s,
            self._command_s,
            data_size_limit=_MAX_SIZE,
            hostname="simulator.hongyan",
            ident="ESMTP",
            tls_context=self._certificate,
            require_starttls=self._certificate is not None,
            auth_require_tls=self._certificate is not None,
            authenticator=self._authenticate,
            loop=asyncio.get_running_loop(),
        )

    async def handle_EHLO(
        self, door: SmtpHandler, visit: Visit, letter: Letter, name: str, lines: list[str]
    ) -> list[str]:
        """Greets, or refuses."""
        if door.early is None:
            door.early = staged(self._draw("/smtp/", "", f"{NAME}:visit"))
        stage, code = door.early
        if stage == "hello":
            return [worded(code)]
        visit.host_name = name
        return lines

    async def handle_AUTH(
        self, door: SmtpHandler, visit: Visit, letter: Letter, arguments: list[str]
    ) -> Any:
        """Refuses by fate, or leaves it to the credentials."""
        stage, code = door.early or ("", "")
        return worded(code) if stage == "auth" else MISSING

    async def handle_MAIL(
        self, door: SmtpHandler, visit: Visit, letter: Letter, address: str, options: list[str]
    ) -> str:
        """Begins a message."""
        await asyncio.sleep(self._command_s)
        if not visit.authenticated:
            return "530 5.7.0 Authentication required"
        door.path, door.fate = f"/smtp/{address}", None
        door.messages += 1
        stage, code = staged(self._draw(door.path, "", f"{NAME}:mail"))
        if stage == "mail" or (stage in BEFORE_MAIL and door.messages > 1):
            return worded(code)
        letter.mail_from = address
        letter.mail_options.extend(options)
        return "250 2.1.0 OK"

    async def handle_RCPT(
        self, door: SmtpHandler, visit: Visit, letter: Letter, address: str, options: list[str]
    ) -> str:
        """Takes one receiver; keeps a refused one, too."""
        await asyncio.sleep(self._command_s)
        if door.fate is None:
            fate = self._draw(door.path, address, f"{NAME}:{address}")
            door.fate = FaultDecision() if staged(fate)[0] in BEFORE_RCPT else fate
        stage, code = staged(door.fate)
        refused = code if stage == "rcpt" else self._receiver_code(door.path, address)
        if len(letter.rcpt_tos) >= _MAX_RECEIVERS:
            refused = "452"
        if refused:
            await self._keep([self._record(door, address, refused)])
            return worded(refused)
        letter.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, door: SmtpHandler, visit: Visit, letter: Letter) -> str:
        """Takes the final dot: refuses a malformed message, else keeps it and follows its fate."""
        content, fate = letter.original_content or b"", door.fate or FaultDecision()
        message_id, wrong = read_letter(content)
        if wrong:
            return f"554 5.6.0 {wrong}"
        due = asyncio.get_running_loop().time() + (fate.delay_ms + self._final_ms) / _MS
        answer, call = answer_of(fate), self._provider.memory.last_seq + 1
        await self._keep(
            [
                self._record(door, one, answer, message_id, content, call, accepted=fate.accepted)
                for one in letter.rcpt_tos
            ]
        )
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        return await self._end(door, fate, answer)

    async def _end(self, door: SmtpHandler, fate: FaultDecision, answer: str) -> str:
        if fate.ending is ConnectionEnd.ANSWER:
            return (
                to_dot(fate, answer)
                if fate.status == 200
                else f"HTTP/1.1 {answer} not a mail server"
            )
        transport = cast(asyncio.Transport, door.transport)  # uvloop's own class, the same methods
        if fate.ending is ConnectionEnd.RESET:
            sock: socket.socket = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            transport.abort()
        elif fate.ending is ConnectionEnd.DRIP:
            for byte in worded("250").encode() + b"\r\n":
                transport.write(bytes([byte]))
                await asyncio.sleep(fate.drip_ms / _MS)
        if fate.ending is not ConnectionEnd.HANG:
            transport.close()
        await asyncio.Event().wait()  # until the connection is lost, which cancels this
        raise AssertionError("nothing sets that event")

    def _authenticate(
        self, door: SMTP, visit: Visit, letter: Letter, mechanism: str, data: Any
    ) -> AuthResult:
        """Checks name and password, both or none."""
        good = (
            isinstance(data, LoginPassword)
            and compare_digest(data.login, self._user)
            and compare_digest(data.password, self._password)
        )
        counts = self._provider.memory.counts
        name = "smtp.logins" if good else "smtp.logins_refused"
        counts[name] = counts.get(name, 0) + 1
        return AuthResult(success=good, handled=False)

    def _draw(self, path: str, receiver: str, key: str) -> FaultDecision:
        return self._provider.fate("POST", path, receiver, key, self._turn(key))

    def _receiver_code(self, path: str, receiver: str) -> str:
        provider, turn = self._provider, self._turn(f"receiver\0{receiver}")
        return receiver_code(provider.rules.ready, provider.seed, path, receiver, turn)

    def _turn(self, key: str) -> int:
        turn = self._turns.get(key, 0)
        self._turns[key] = turn + 1
        return turn

    def _record(
        self,
        door: SmtpHandler,
        receiver: str,
        answer: str,
        message_id: str = "",
        content: bytes = b"",
        call: int = 0,
        *,
        accepted: bool = False,
    ) -> LedgerRecord:
        """Remembers a record at once, in the order of arrival; `_keep` writes it to disk."""
        memory = self._provider.memory
        name = message_id.partition("@")[0]
        record = LedgerRecord(
            seq=memory.last_seq + 1,
            at_ms=int(time() * _MS),
            key=f"{NAME}:{name}:{receiver}",
            path=door.path,
            id=name,
            receiver=receiver,
            attempt=0,
            digest=sha256(content).hexdigest()[:_DIGEST],
            accepted=accepted,
            answer=answer,
            protocol=NAME,
            provider_id=message_id,
            call=call,
        )
        memory.add(record)
        return record

    async def _keep(self, records: list[LedgerRecord]) -> None:
        """Returns when all of them are on disk."""
        kept = asyncio.get_running_loop().create_future()
        writer = self._provider.writer
        for record in records:
            writer.append(record, _nothing)
        writer.after(_once(kept))
        await kept


def _once(kept: asyncio.Future[None]) -> Callable[[], None]:
    """Returns a callback that ends the wait, unless the connection has ended it already."""
    return lambda: None if kept.done() else kept.set_result(None)


def _nothing() -> None:
    """Does nothing: `_keep` waits for all records."""
