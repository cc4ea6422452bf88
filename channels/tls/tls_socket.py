"""TLS over an open socket, without a thread that waits in it.

OpenSSL reads and writes memory alone (`ssl.MemoryBIO`); the bytes go over the socket as those of a plain
connection do (channels/http_client/sockets.py). So the thread that reads answers reads those over TLS as
well (docs/decisions/081-tls-in-memory.md).

    answer     socket ──▶ whole records ──▶ OpenSSL ──▶ plain bytes; nothing for tickets, key updates
    request    plain bytes ──▶ OpenSSL ──▶ records ──▶ socket

A request counts as taken once every byte of its records is: no peer can read a part of a record.
"""

from __future__ import annotations

import ssl
from time import monotonic
from typing import Final

from channels.http_client.sockets import PlainWire
from channels.tls.context import TlsPeer
from channels.tls.records import records_of

_HEAD: Final = 5
"""Bytes before each record: its type, a version, the length of the rest in two."""
_RECORD: Final = 16 << 10
"""Plain bytes in a record, at most: one read gives all of it."""
_PIECE: Final = 1 << 20
"""Plain bytes that are encrypted before they are written: a large request is not held twice."""


class TlsWire:
    """One connection. One thread at a time, as the socket's own wire."""

    def __init__(self, wire: PlainWire, peer: TlsPeer) -> None:
        """`open` must come first."""
        self.descriptor = wire.descriptor
        self._wire = wire
        self._peer = peer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = peer.context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=peer.host, session=peer.session
        )
        self._records = records_of(self._tls, _RECORD)
        self._part = b""
        """The beginning of a record whose rest has not come."""
        self._unsent = b""
        """Encrypted, and not taken by the socket yet."""
        self._offered = 0
        """Plain bytes of the record that `offer` made last, until the socket has taken all of it."""
        self._session_kept = False

    @property
    def protocol(self) -> str:
        """What ALPN agreed on; empty: nothing."""
        return self._tls.selected_alpn_protocol() or ""

    def open(self, left_s: float) -> None:
        """The handshake, within the time. Raises TimeoutError, OSError: nothing was sent."""
        until = monotonic() + left_s
        while True:
            try:
                self._tls.do_handshake()
                self._flush(until)
                return
            except ssl.SSLWantReadError:
                self._flush(until)
            except ssl.SSLError:
                self._flush_now()  # tells the peer why
                raise
            self._take_in(self._wire.receive(_left(until)))

    def silent(self) -> bool:
        """As any wire's. Session tickets and key updates that came while it was idle are taken in: they
        are no answers."""
        if not self._incoming.pending and not self._part and self._wire.silent():
            return True
        try:
            return self.receive_now() is None and not self._part
        except OSError:
            return False

    def send(self, data: bytes, left_s: float) -> int:
        """As any wire's; with plain bytes counted."""
        until = monotonic() + left_s
        taken = self._records.write(data)  # one record
        if taken < len(data):
            rest = memoryview(data)[taken:_PIECE]
            while rest:
                rest = rest[self._records.write(rest) :]
            taken = min(len(data), _PIECE)
        self._flush(until)
        return taken

    def offer(self, data: bytes) -> int:
        """As any wire's; at most one record, which counts once the socket has all of it."""
        try:
            if not self._offered:
                self._flush(monotonic())
                self._offered = self._records.write(data[:_RECORD])
            self._flush(monotonic())
        except TimeoutError:
            return 0
        taken, self._offered = self._offered, 0
        return taken

    def receive(self, left_s: float) -> bytes | memoryview:
        """As any wire's. Raises OSError where the connection ends without TLS's own end: what came may
        have been cut short by anybody."""
        until = monotonic() + left_s
        found = self._decrypted() if self._incoming.pending else None
        while found is None:
            self._take_in(self._wire.receive(_left(until)))
            found = self._decrypted()
        return found

    def receive_now(self) -> bytes | memoryview | None:
        """As any wire's. Raises OSError as `receive` does."""
        found = self._decrypted() if self._incoming.pending else None
        while found is None and (data := self._wire.receive_now()) is not None:
            self._take_in(data)
            found = self._decrypted()
        return found

    def hang_up(self) -> None:
        """As any wire's."""
        self._wire.hang_up()

    def say_goodbye(self) -> None:
        """Tell the peer that nothing more comes. For a connection that carries no call."""
        try:
            self._tls.unwrap()
        except (OSError, ValueError):
            pass  # it does not wait for the peer's own word
        self._flush_now()

    def _decrypted(self) -> bytes | memoryview | None:
        """Plain bytes, empty at the end; None: more must come first."""
        try:
            found = self._records.read(_RECORD)
        except ssl.SSLWantReadError:
            self._keep_session()  # it has read something other than an answer
            return None
        finally:
            if self._outgoing.pending:
                self._flush_now()  # the other half of a key update
        if not self._session_kept:
            self._keep_session()
        return found

    def _keep_session(self) -> None:
        session = self._tls.session
        self._session_kept = True
        if session is not None and session.has_ticket:
            self._peer.session = session

    def _take_in(self, data: bytes | memoryview) -> None:
        """Give OpenSSL the records that are whole. So it never holds a part of one, which could be the
        beginning of an answer that nobody asked for."""
        if not data:
            self._incoming.write(self._part)
            self._incoming.write_eof()
            return
        if self._part:
            data, self._part = self._part + bytes(data), b""
        whole = _whole(data)
        if whole == len(data):
            self._incoming.write(data)
        else:
            self._incoming.write(data[:whole])
            self._part = bytes(data[whole:])

    def _flush(self, until: float) -> None:
        rest = self._unsent + self._outgoing.read()
        try:
            while rest:
                rest = rest[self._wire.send(rest, until - monotonic()) :]
        finally:
            self._unsent = rest

    def _flush_now(self) -> None:
        try:
            self._flush(monotonic())
        except OSError:
            pass  # what is left goes before the next bytes, or the next read tells of the end


def _whole(data: bytes | memoryview) -> int:
    """Bytes of the whole records at its beginning."""
    end, size = 0, len(data)
    while end + _HEAD <= size:
        after = end + _HEAD + (data[end + 3] << 8 | data[end + 4])
        if after > size:
            break
        end = after
    return end


def _left(until: float) -> float:
    """Raises TimeoutError."""
    left_s = until - monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
