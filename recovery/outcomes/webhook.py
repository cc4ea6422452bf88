"""Outcome events posted to the business: JSON, signed as Standard Webhooks says, several in one post.

    POST <outcomes.webhook>   Content-Type: application/json
    webhook-id                follows from the events: a repeat of the same post has the same one
    webhook-timestamp, webhook-signature   see channels/providers/webhook/signature.py

Certificates are verified, redirects not followed. Any 2xx is a success. The batches of a post that was
answered otherwise are posted one by one: the business may refuse a single event for good. After a post
without an answer the next ones have fewer events: the business may need longer for many than a post lasts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from math import inf
from time import monotonic, time
from typing import Final

import msgspec
import structlog

from backends.settings import OutcomeSettings, SettingsError
from channels.endpoints import BadEndpoint
from channels.engine import Sender
from channels.providers.webhook.signature import signed_fields, signing_key
from channels.secret import Secret
from channels.webhook_post import PostError, WebhookPost
from message.keys import KEY_LENGTH
from message.outcome_event import OutcomePost
from recovery.outcomes.events import POST_EVENTS, ReadyEvent, by_batch, in_posts

log = structlog.get_logger(__name__)
_encoder = msgspec.json.Encoder()
_PREFIX: Final = "outcomes-"
_SINGLY_S: Final = 5.0
"""Time for posts after the first refused one, shorter than the lease of the duty. The next look goes on."""
_GROWS: Final = 8
"""The part by which posts grow again after a look without a missing answer."""
_NAMED: Final = 5
"""Refused events that the log names."""


class OutcomeHook:
    """One thread calls `publish`."""

    def __init__(
        self,
        settings: OutcomeSettings,
        sender: Sender,
        now: Callable[[], float] = time,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        """Raises SettingsError for a webhook that is no address, or a secret of another form."""
        try:
            self._hook = WebhookPost(
                settings.webhook, sender, timeout_s=settings.timeout_s, ca_file=settings.ca_file
            )
        except BadEndpoint as exc:
            raise SettingsError(f"outcomes.webhook: {exc}") from exc
        try:
            secrets = settings.webhook_secret.split()
            self._keys = [signing_key(Secret(one)) for one in secrets]
        except ValueError as exc:
            raise SettingsError(f"outcomes.webhook_secret: {exc}") from exc
        self._now = now
        self._monotonic = monotonic
        self._cause = ""
        """The last error, as it was logged."""
        self._most = POST_EVENTS
        """Events of a post; `publish` writes it."""

    def publish(self, events: Sequence[ReadyEvent]) -> set[int]:
        """Returns the batches of which every event was taken. Posts nothing more after a post without an
        answer; and begins no other batch _SINGLY_S after the first refused post, or while posts are small.
        """
        posts = deque(in_posts(events, self._most))
        refused: list[ReadyEvent] = []
        away, cause = "", ""
        until = inf if self._most == POST_EVENTS else self._monotonic() + _SINGLY_S
        begun = 0  # the batch of the last event that was posted
        while posts and not away and (self._monotonic() < until or posts[0][0].batch == begun):
            post = posts.popleft()
            begun, error = post[-1].batch, self._post(post)
            if error is None:
                continue
            if not error.answered:
                away = error.cause
                posts.appendleft(post)
                self._most = max(1, len(post) // 2)
                continue
            until = min(until, self._monotonic() + _SINGLY_S)
            if len(batches := by_batch(post)) > 1:
                posts.extendleft(reversed(batches))
            else:
                cause = error.cause
                refused += post
        if not away:
            self._most = min(POST_EVENTS, self._most + self._most // _GROWS + 1)
        self._note(away)
        self._name(refused, cause)
        left = {one.batch for post in (refused, *posts) for one in post}
        return {one.batch for one in events} - left

    def _post(self, part: Sequence[ReadyEvent]) -> PostError | None:
        """Posts once. Returns the error, or None if it arrived."""
        body = _encoder.encode(OutcomePost(events=[one.event for one in part]))
        names = "".join(one.event.event_id for one in part)
        post_id = _PREFIX + sha256(names.encode()).hexdigest()[:KEY_LENGTH]
        signed = signed_fields(self._keys, post_id.encode(), int(self._now()), body)
        return self._hook.post(body, signed)

    def _name(self, refused: Sequence[ReadyEvent], cause: str) -> None:
        """Logs the refused events, once a look."""
        if refused:
            some = [one.event.event_id for one in refused[:_NAMED]]
            what = f"{len(refused)} are tried again until outcomes.keep_days; others go on"
            log.error("outcomes_refused", target="webhook", cause=cause, events=some, what=what)

    def _note(self, cause: str) -> None:
        """Logs a new cause of missing answers once, and their end."""
        if cause and cause != self._cause:
            log.error("outcomes_held", target="webhook", cause=cause, what=_REMEDY)
        elif self._cause and not cause:
            log.info("outcomes_go_on", target="webhook")
        self._cause = cause


_REMEDY: Final = "deliveries go on; events wait in the ledger until outcomes.webhook takes them"
