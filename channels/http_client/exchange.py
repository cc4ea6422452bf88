"""One call over an open connection: a request that is written, then an answer that is read.

The written bytes alone decide the result of the call:

    not every byte was taken                        NOT_WRITTEN: nobody can act on a part of a request
    every byte was taken, and no whole answer came  WRITTEN

No error's name or number counts, and nothing is ever written a second time. The calling thread waits for
the answer (`wait`), or the reader thread reads it piece by piece (`advance`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic

import httpx

from channels.channel import Failure, Phase
from channels.http_client.failures import late
from channels.http_client.response import LeanResponse
from channels.http_client.sockets import Wire
from channels.http_client.wire_format import BadAnswer, ResponseParser


class Exchange:
    """Belongs to one thread at a time. Ends once, with the first answer or failure that it gives."""

    __slots__ = ("_ended", "_reader", "_request", "_size", "_started", "_taken", "deadline", "wire")

    def __init__(
        self,
        request: httpx.Request,
        wire: Wire,
        started: float,
        deadline: float,
        ended: Callable[[bool], None],
    ) -> None:
        """Times are monotonic. `ended` is called at the end, with whether another call may use the wire."""
        self.deadline = deadline
        """Time by which the answer must be whole."""
        self.wire = wire
        self._request = request
        self._started = started
        self._ended = ended
        self._reader = ResponseParser(without_body=request.method == "HEAD")
        self._size = self._taken = 0

    def write(self, data: bytes) -> Failure | None:
        """Writes the whole request. Returns None if the answer may come."""
        self._size = len(data)
        failure: Failure | None = None
        try:
            if monotonic() > self._request.extensions.get("not_after", inf):
                failure = late()  # nothing may separate this check from the first byte
            else:
                self._write(data)
        except TimeoutError:
            failure = self._failure("timeout", "the deadline passed before the request was written")
        except OSError as exc:
            failure = self._failure("reset", str(exc))
        finally:
            if self._taken < self._size:
                self._ended(False)
        return failure

    def wait(self) -> LeanResponse | Failure:
        """Waits for the answer."""
        found = self._read(self._receive)
        assert found is not None
        return found

    def advance(self) -> LeanResponse | Failure | None:
        """Reads the bytes that came. Returns the answer; None: it is not whole yet."""
        return self._read(self.wire.receive_now)

    def expire(self) -> Failure:
        """Ends the call whose deadline passed."""
        self._ended(False)
        return self._late()

    def give_up(self, code: str, detail: str) -> Failure:
        """Ends a call whose answer cannot be read any more."""
        self._ended(False)
        return self._failure(code, detail)

    def _write(self, data: bytes) -> None:
        wire = self.wire
        self._taken = wire.send(data, self.deadline - monotonic())
        while self._taken < len(data):
            self._taken += wire.send(data[self._taken :], self.deadline - monotonic())

    def _receive(self) -> bytes | memoryview:
        left_s = self.deadline - monotonic()
        if left_s <= 0:
            raise TimeoutError
        return self.wire.receive(left_s)

    def _read(
        self, receive: Callable[[], bytes | memoryview | None]
    ) -> LeanResponse | Failure | None:
        over, clean = True, False
        try:
            over = self._is_whole(receive)
            clean = self._reader.reusable
        except TimeoutError:
            return self._late()
        except BadAnswer as exc:
            return self._failure(exc.code, str(exc))
        except OSError as exc:
            return self._failure("reset", str(exc))
        finally:  # a late answer must never be taken for the next call's
            if over:
                self._ended(clean)
        return self._answer() if over else None

    def _is_whole(self, receive: Callable[[], bytes | memoryview | None]) -> bool:
        reader = self._reader
        while not reader.done:
            piece = receive()
            if piece is None:
                return False
            if piece:
                reader.feed(piece)
            else:
                reader.end()
        return True

    def _answer(self) -> LeanResponse:
        reader, seconds = self._reader, monotonic() - self._started
        return LeanResponse(reader.status, reader.headers, reader.body, self._request, seconds)

    def _late(self) -> Failure:
        return self._failure("timeout", "the deadline passed before the answer was whole")

    def _failure(self, code: str, detail: str) -> Failure:
        if self._taken == self._size:
            return Failure(Phase.WRITTEN, code, detail)
        text = f"{detail} ({self._taken} of {self._size} bytes sent)"
        return Failure(Phase.NOT_WRITTEN, code, text)
