"""Opens the sender of a run: checks the file, looks into the topic, and goes to the checkpoint.

The order: the file's bytes are compared first. Then the topic is read from the last checkpoint's positions
on. Then the run's row is written, so that the process before this one writes no checkpoint any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

from backends.kafka.clients import existing_topics
from backends.settings import KafkaSettings
from message.envelope import EnvelopeError
from message.vocabulary import lane_named
from producer.campaigns.contract import Campaign, CampaignOvertaken, CampaignRun, RunPlace
from producer.campaigns.crowd_file import CrowdReader, CrowdWatch, KeepGoing, opened_crowd
from producer.campaigns.notifications import RowBuilder, RowChecks
from producer.campaigns.repeated_receivers import MetReceivers
from producer.campaigns.row_publisher import RunTrouble
from producer.campaigns.run_sender import (
    WINDOW,
    RunInput,
    RunSender,
    RunSurroundings,
)
from producer.campaigns.run_store import RunProgress
from producer.campaigns.topic_tail import TopicTail


class OpeningStopped(Exception):
    """The process stops, or the lease was lost, while a run was being opened."""


class RunOpening(NamedTuple):
    """Opens senders. `checks` returns the checks of rows, with the templates in force."""

    kafka: KafkaSettings
    checks: Callable[[], RowChecks]

    @contextmanager
    def opened(self, campaign: Campaign, around: RunSurroundings) -> Iterator[RunSender]:
        """Yields the sender of the campaign's open run. Raises RunTrouble, CrowdUnusable, OpeningStopped,
        CampaignOvertaken, KafkaTrouble, LedgerError."""

        def keep_going() -> None:
            if around.stopping() or not around.lease.holds():
                raise OpeningStopped(campaign.id)

        run = around.runs.get(campaign.run_id or "")
        if run is None:
            raise CampaignOvertaken(f"campaign {campaign.id} has no open run")
        with ExitStack() as stack:
            watch = CrowdWatch(campaign.crowd, keep_going)
            watch.check()
            topic = self._topic(campaign)
            tail = TopicTail(self.kafka, topic, WINDOW)
            there = tail.rows_there(run)
            positions = run.positions or tail.ends()
            keep_going()
            run = around.runs.write(run, RunProgress(run.reached, positions, (), 0))
            builder = RowBuilder(campaign, run.id, self.checks(), around.clock.now_ms)
            met = self._met(campaign, run, builder, keep_going, stack)
            file = stack.enter_context(opened_crowd(campaign.crowd))
            reader = CrowdReader(file, campaign.crowd, run.reached)
            given = RunInput(campaign, run, topic, reader, watch, builder, met, there)
            yield RunSender(given, around)

    def _topic(self, campaign: Campaign) -> str:
        """Returns the lane's topic. Raises RunTrouble if there is none."""
        lane = lane_named(campaign.lane)
        if lane is None:
            raise RunTrouble(f"there is no lane {campaign.lane}: make a new campaign")
        topic = lane.topic(self.kafka.topic_prefix)
        topics = existing_topics(self.kafka)
        if topics is not None and topic not in topics:
            raise RunTrouble(f"there is no topic {topic}: run `hongyan topics apply`, then resume")
        return topic

    def _met(
        self,
        campaign: Campaign,
        run: CampaignRun,
        builder: RowBuilder,
        keep_going: KeepGoing,
        stack: ExitStack,
    ) -> MetReceivers | None:
        """Returns the receivers of the good rows before the checkpoint; None if repeats are sent."""
        if not campaign.limits.once_per_receiver:
            return None
        met = stack.enter_context(closing(MetReceivers()))
        if not run.done:
            return met
        with opened_crowd(campaign.crowd) as file:
            for row in CrowdReader(file, campaign.crowd, RunPlace()):
                if row.number > run.done:
                    break
                keep_going()
                try:
                    if not row.code:
                        met.add(builder.build(row.number, row.fields).receiver)
                except EnvelopeError:
                    continue  # a bad row
        return met
