"""The client for asyncio, over the same core. It never blocks the loop, and makes no thread for a send."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Final, Self

from hongyan_client.client import NotSentItem, SendSummary
from hongyan_client.core import ClientCore, Wired
from hongyan_client.errors import BufferFull, ClientError
from hongyan_client.metrics import ClientFigures, Observer
from hongyan_client.options import DEFAULT_OPTIONS, ClientOptions
from hongyan_client.overflow import OpenOverflow
from hongyan_client.sends.pending_send import PendingSend, SentNotification
from hongyan_client.sends.waiting_line import WaitingCall, WaitingLine
from message.envelope import Notification
from message.producer_properties import Property
from message.vocabulary import DEFAULT_TOPIC_PREFIX

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.002, 0.1
_SPILL_S: Final = 5.0
"""Longest wait for room in the overflow's queue, of the one call whose turn it is."""
_TOGETHER: Final = 1_000
"""Sends of `send_many` that are under way together."""


class AsyncClient:
    """Sends notifications from a loop. Safe from any loop and thread; one for a process."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "hongyan-client",
        topic_prefix: str = DEFAULT_TOPIC_PREFIX,
        properties: Mapping[str, Property] | None = None,
        options: ClientOptions = DEFAULT_OPTIONS,
        overflow: OpenOverflow | None = None,
        observer: Observer | None = None,
    ) -> None:
        """As `hongyan_client.Client`. Raises WrongProperties."""
        self._core = ClientCore(
            bootstrap,
            client_id=client_id,
            topic_prefix=topic_prefix,
            properties=properties or {},
            options=options,
            overflow=overflow,
            observer=observer,
        )
        self._line = WaitingLine()

    async def send(
        self,
        notification: Notification,
        *,
        traceparent: str | None = None,
        deadline_s: float | None = None,
    ) -> SentNotification:
        """Returns where the notification is safe. Waits while the buffer is full, at most `deadline_s`
        seconds (None: the option's); with an overflow as long as the calls before it. A cancelled call
        takes nothing back. Raises ClientError."""
        send, future, wired = self._core.prepared(notification, traceparent)
        longest = self._core.options.deadline_s if deadline_s is None else deadline_s
        await self._enqueued(send, wired, longest)
        return await asyncio.shield(asyncio.wrap_future(future))

    async def send_many(self, notifications: Iterable[Notification]) -> SendSummary:
        """Sends all and waits for their ends, in the order of the call. A notification that fails keeps
        none of the others back."""
        sent: list[SentNotification] = []
        failed: list[NotSentItem] = []
        batch: list[Notification] = []
        for one in notifications:
            batch.append(one)
            if len(batch) == _TOGETHER:
                await self._sent_together(batch, sent, failed)
                batch = []
        await self._sent_together(batch, sent, failed)
        return SendSummary(sent, failed)

    async def flush(self, timeout_s: float) -> int:
        """Waits until each notification is safe, at most `timeout_s` seconds. Returns the number of
        those that are not."""
        return await asyncio.to_thread(self._core.flush, timeout_s)

    async def drain(self, timeout_s: float) -> int:
        """Lets the spool publish what it has. Returns the number that still waits; 0 without a spool."""
        return await asyncio.to_thread(self._core.drain, timeout_s)

    def figures(self) -> ClientFigures:
        """Returns the figures for metrics, hot keys among them."""
        return self._core.figures()

    async def close(self, timeout_s: float = 30.0) -> int:
        """Flushes and closes; idempotent. Returns the number of notifications that are not safe."""
        return await asyncio.to_thread(self._core.close, timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _enqueued(self, send: PendingSend, wired: Wired, deadline_s: float) -> None:
        """Hands the send over as soon as there is room, after the calls that wait already. Raises
        BufferFull."""
        if not self._line and self._took(send, wired):
            return
        until, turn = time.monotonic() + deadline_s, self._line.join()
        with ExitStack() as stack:
            stack.callback(self._line.leave, turn)
            if await self._took_in_turn(turn, send, wired, until):
                return
            if not self._core.has_overflow:
                raise self._core.publisher.buffer_full(deadline_s)
            spill = partial(self._core.enqueue, send, wired, 0, spill_s=_SPILL_S)
            spilled = asyncio.ensure_future(asyncio.to_thread(spill))
            turn_ends = stack.pop_all()  # once the thread is done, even if this call is cancelled
            spilled.add_done_callback(lambda _spilled: turn_ends.close())
        await asyncio.shield(spilled)

    async def _took_in_turn(
        self, turn: WaitingCall, send: PendingSend, wired: Wired, until: float
    ) -> bool:
        """Returns whether the buffer took the send until its deadline. What goes to the overflow goes
        there in turn, too."""
        patience_s = None if self._core.has_overflow else until - time.monotonic()
        if not await turn.comes(patience_s):
            return False
        wait = _FIRST_WAIT_S
        while not self._took(send, wired):
            if (left := until - time.monotonic()) <= 0:
                return False
            await asyncio.sleep(min(wait, left))
            wait = min(2 * wait, _LONGEST_WAIT_S)
        return True

    def _took(self, send: PendingSend, wired: Wired) -> bool:
        """Returns whether there was room for the send."""
        try:
            self._core.enqueue(send, wired, 0, last=False)
        except BufferFull:
            return False
        return True

    async def _sent_together(
        self,
        batch: list[Notification],
        sent: list[SentNotification],
        failed: list[NotSentItem],
    ) -> None:
        """Sends all at once, and adds their ends."""
        ends = await asyncio.gather(*map(self.send, batch), return_exceptions=True)
        for one, end in zip(batch, ends, strict=True):
            if isinstance(end, SentNotification):
                sent.append(end)
            elif isinstance(end, ClientError):
                failed.append(NotSentItem(one, end))
            else:
                raise end
