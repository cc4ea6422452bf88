"""TLS over an open socket, without a thread that waits in it.

OpenSSL reads and writes memory alone (`ssl.MemoryBIO`). The bytes go over the socket as those of a plain
connection do (channels/http_client/sockets.py). So the thread that reads answers also reads those over TLS
(docs/decisions/081-tls-in-memory.md).

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
"""Plain bytes in a record, at most: one read returns all of it."""
_PIECE: Final = 1 << 20
"""Plain bytes that are encrypted before they are written: a large request is not held twice."""


class TlsWire:
    """One connection; see `channels.http_client.sockets.Wire`. One thread at a time."""

    def __init__(self, wire: PlainWire, peer: TlsPeer) -> None:
        """The caller must call `open` first."""
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
        """The protocol that ALPN agreed on; empty: none."""
        return self._tls.selected_alpn_protocol() or ""

    def open(self, left_s: float) -> None:
        """Makes the handshake within the time. Raises TimeoutError, OSError: nothing was sent."""
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
        """Takes in session tickets and key updates that came while it was idle: they are no answers."""
        if not self._incoming.pending and not self._part and self._wire.silent():
            return True
        try:
            return self.receive_now() is None and not self._part
        except OSError:
            return False

    def send(self, data: bytes, left_s: float) -> int:
        """Counts plain bytes."""
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
        """Offers at most one record, which counts once the socket has all of it."""
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
        """Raises OSError if the connection ends without TLS's own end: anybody may have cut it short."""
        until = monotonic() + left_s
        found = self._decrypted() if self._incoming.pending else None
        while found is None:
            self._take_in(self._wire.receive(_left(until)))
            found = self._decrypted()
        return found

    def receive_now(self) -> bytes | memoryview | None:
        """Raises OSError as `receive` does."""
        found = self._decrypted() if self._incoming.pending else None
        while found is None and (data := self._wire.receive_now()) is not None:
            self._take_in(data)
            found = self._decrypted()
        return found

    def hang_up(self) -> None:
        self._wire.hang_up()

    def close(self) -> None:
        self._wire.close()

    def say_goodbye(self) -> None:
        """Tells the peer that nothing more comes. For a connection that carries no call."""
        try:
            self._tls.unwrap()
        except (OSError, ValueError):
            pass  # it does not wait for the peer's own word
        self._flush_now()

    def _decrypted(self) -> bytes | memoryview | None:
        """Returns plain bytes, empty at the end; None: more must come first."""
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
        """Gives OpenSSL whole records only. So it never holds a part of one, which might begin a stray
        answer."""
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
            pass  # the rest goes before the next bytes, or the next read reports the end


def _whole(data: bytes | memoryview) -> int:
    """Returns the number of bytes of the whole records at the beginning."""
    end, size = 0, len(data)
    while end + _HEAD <= size:
        after = end + _HEAD + (data[end + 3] << 8 | data[end + 4])
        if after > size:
            break
        end = after
    return end


def _left(until: float) -> float:
    """Returns the time left. Raises TimeoutError if there is none."""
    left_s = until - monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
