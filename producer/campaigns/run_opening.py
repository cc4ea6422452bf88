"""Opens the sender of a run: checks the file, looks into the topic, and goes to the checkpoint.

The order: the file's bytes are compared first. Then the topic is read from the last checkpoint's positions
on. Then the run's row is written, so that the process before this one writes no checkpoint any more.
The lease is renewed during each step that may take long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import NamedTuple

from backends.kafka.clients import existing_topics
from backends.settings import KafkaSettings
from message.envelope import EnvelopeError
from message.vocabulary import lane_named
from producer.campaigns.contract import Campaign, CampaignOvertaken, CampaignRun, RunPlace
from producer.campaigns.crowd_file import CrowdReader, CrowdWatch, KeepGoing, opened_crowd
from producer.campaigns.crowd_rows import CrowdRow
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
            there = tail.rows_there(run, keep_going)
            positions = run.positions or tail.ends()
            # From here on another process may write the row during a lapse.
            lapses = around.lease.lapses
            keep_going()
            run = around.runs.write(run, RunProgress(run.reached, positions, (), 0))
            builder = RowBuilder(campaign, run.id, self.checks(), around.clock.now_ms)
            sent = _SentRows(run, around.runs.unsent_lines(run.id), there)
            met = self._met(sent, campaign, builder, keep_going, stack)
            file = stack.enter_context(opened_crowd(campaign.crowd))
            reader = CrowdReader(file, campaign.crowd, run.reached, keep_going)
            given = RunInput(campaign, run, topic, reader, watch, builder, met, there, lapses)
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
        sent: _SentRows,
        campaign: Campaign,
        builder: RowBuilder,
        keep_going: KeepGoing,
        stack: ExitStack,
    ) -> MetReceivers | None:
        """Returns the receivers of the rows that were sent; None if repeats are sent. Today's templates do
        not matter."""
        if not campaign.limits.once_per_receiver:
            return None
        met = stack.enter_context(closing(MetReceivers()))
        if not sent.last:
            return met
        with opened_crowd(campaign.crowd) as file:
            for row in CrowdReader(file, campaign.crowd, RunPlace()):
                if row.number > sent.last:
                    break
                keep_going()
                if not sent.has(row) or row.code:
                    continue
                with suppress(EnvelopeError):  # a run of before had not all its bad lines kept
                    met.add(builder.receiver(row.fields))
        return met


class _SentRows:
    """The rows of a run that were sent: those before the checkpoint that are not listed as bad or repeated,
    and those after it that the topic holds. For one thread, which asks for each row in the file's order."""

    def __init__(self, run: CampaignRun, unsent: Iterator[int], there: frozenset[int]) -> None:
        """`unsent`: first lines of the rows that were not sent, ascending."""
        self._done = run.done
        self._unsent = unsent
        self._there = there
        self._next: int | None = -1
        self.last = max(there, default=run.done)
        """Number of the last of them, or the checkpoint's."""

    def has(self, row: CrowdRow) -> bool:
        """Returns whether the row was sent."""
        if row.number > self._done:
            return row.number in self._there
        while self._next is not None and self._next < row.line:
            self._next = next(self._unsent, None)
        return self._next != row.line
