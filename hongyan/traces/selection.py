"""Selects deliveries by receiver and template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backends.settings import Settings
from hongyan.errors import WrongUsage
from message.keys import delivery_key, normalise_receiver
from message.outcome_event import receiver_hash
from message.vocabulary import LANES
from tracing.stories import SearchTerms, only
from tracing.timeline import Story

CHANNELS: Final = tuple(dict.fromkeys(lane.channel for lane in LANES))


def terms_of(settings: Settings, receiver: str, template: str) -> SearchTerms:
    """Returns the terms of a receiver typed in full, and of a template. Raises WrongUsage without the key
    by which receivers are hashed."""
    key = settings.outcomes.hash_key
    if receiver and not key:
        raise WrongUsage(
            "--receiver: the trace has receivers as a hash under outcomes.hash_key, which is not set;"
            " search by the message's id or your biz_id"
        )
    hashes = (
        receiver_hash(key.encode(), channel, normalise_receiver(channel, receiver))
        for channel in CHANNELS
    )
    return SearchTerms(frozenset(hashes) if receiver else frozenset(), template)


def of_receiver(stories: Sequence[Story], receiver: str) -> list[Story]:
    """Returns the stories with this receiver's deliveries alone, by their keys; needs no hash."""
    keys = {
        delivery_key(story.message_id, channel, normalise_receiver(channel, receiver))
        for story in stories
        for channel in CHANNELS
    }
    return only(stories, keys)


def of_template(stories: Sequence[Story], template: str) -> list[Story]:
    """Returns the stories with this template's deliveries alone."""
    found = [one for story in stories for one in story.deliveries if one.template == template]
    return only(stories, {one.delivery_key for one in found})
