"""OpenSSL's work on one record, without releasing the GIL.

Python's `ssl` releases the GIL while OpenSSL encrypts or decrypts. That work takes some microseconds. To
get the GIL back costs more, since other threads want it all the time. In memory nothing can block, so both
functions keep the GIL (`ctypes.PyDLL`), as channels/http_client/sockets.py does.

Python's object made the session, verified the peer and still owns it. Only its pointer is read, from its
place in CPython 3.11 to 3.14. If an object does not look as expected, `ssl`'s own methods serve:

    word   0         1       2          3         4
           count     type    no socket  SESSION   the context

After a failure `ssl`'s own method runs, and raises the right error.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl
from typing import Any, Final, Protocol

_TYPE, _SOCKET, _SESSION, _CONTEXT = 1, 2, 3, 4
_WORDS: Final = 5
_WORD: Final = ctypes.sizeof(ctypes.c_void_p)
_ARGUMENTS: Final = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class Records(Protocol):
    """One session's records. One thread at a time."""

    def read(self, most: int) -> bytes | memoryview:
        """Returns up to `most` plain bytes of the next record, empty at the end; valid until the next call.
        Raises ssl.SSLError."""

    def write(self, data: bytes | memoryview) -> int:
        """Returns the number of plain bytes that were encrypted. Raises ssl.SSLError."""


def records_of(tls: ssl.SSLObject, most: int) -> Records:
    """Returns the session's records, of up to `most` plain bytes. They keep the GIL if possible."""
    session = _session_of(tls) if _functions is not None else 0
    return _HeldRecords(tls, session, most) if session else tls


class _HeldRecords:
    """Keeps the GIL."""

    def __init__(self, tls: ssl.SSLObject, session: int, most: int) -> None:
        self._tls = tls  # owns the session
        self._session = session
        self._buffer = ctypes.create_string_buffer(most)
        self._bytes = memoryview(self._buffer).cast("B")
        self._count = ctypes.c_size_t()
        self._counted = ctypes.addressof(self._count)
        assert _functions is not None
        self._read, self._write = _functions

    def read(self, most: int) -> bytes | memoryview:
        if self._read(self._session, self._buffer, most, self._counted):
            return self._bytes[: self._count.value]
        return self._tls.read(most)

    def write(self, data: bytes | memoryview) -> int:
        if isinstance(data, bytes) and self._write(self._session, data, len(data), self._counted):
            return self._count.value
        return self._tls.write(data)


def _session_of(tls: ssl.SSLObject) -> int:
    """Returns the address of OpenSSL's session; 0 if the object does not look as expected."""
    inner: Any = getattr(tls, "_sslobj", None)
    if type(inner).__basicsize__ < _WORDS * _WORD:
        return 0
    words = (ctypes.c_void_p * _WORDS).from_address(id(inner))
    looks_so = (
        words[_TYPE] == id(type(inner))
        and not words[_SOCKET]
        and words[_CONTEXT] == id(tls.context)
    )
    return (words[_SESSION] or 0) if looks_so else 0


def _found() -> tuple[Any, Any] | None:
    """Returns the functions of the very library that `ssl` uses; None if they are not visible."""
    try:
        library = ctypes.PyDLL(getattr(_ssl, "__file__", None))
        functions = library.SSL_read_ex, library.SSL_write_ex
    except (OSError, AttributeError):
        return None
    for function in functions:
        function.argtypes, function.restype = _ARGUMENTS, ctypes.c_int
    return functions


_functions: Final = _found()
