"""Lanes of a resend job, and who may see and operate it.

A job by state has the lanes of its filter. A job by ids has the lanes of its items; before there are any,
it is its author's alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from admin.access import Forbidden, Person, Role
from idempotency.resend_jobs.contract import ItemFate, JobCount, ResendJob
from idempotency.resend_jobs.items import fate_sum
from recovery.resend_jobs.rules import same_person


class JobShown(NamedTuple):
    """A job with its counts, as pages show it."""

    job: ResendJob
    counts: Sequence[JobCount]

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes that the job touches."""
        if self.job.wanted.states:
            return tuple(self.job.wanted.lanes)
        return tuple(sorted({one.lane for one in self.counts if one.lane}))

    @property
    def sent(self) -> int:
        """Items that arrived at a provider."""
        return fate_sum(self.counts, ItemFate.SENT)

    @property
    def failed(self) -> int:
        """Items that failed or were refused."""
        return fate_sum(self.counts, ItemFate.FAILED, ItemFate.REFUSED)

    @property
    def under_way(self) -> int:
        """Items that were handed over, and have not ended."""
        return fate_sum(self.counts, ItemFate.APPLYING, ItemFate.APPLIED)

    @property
    def pending(self) -> int:
        """Items that wait for their turn."""
        return fate_sum(self.counts, ItemFate.PENDING)

    @property
    def ineligible(self) -> int:
        """Items that are not sent."""
        return fate_sum(self.counts, ItemFate.INELIGIBLE)


def may_view(person: Person, shown: JobShown) -> bool:
    """Returns whether the person may see the job."""
    return _may(person, Role.VIEWER, shown)


def may_act(person: Person, role: Role, shown: JobShown) -> bool:
    """Returns whether the person has the role for all lanes of the job."""
    return person.may(role) and _may(person, role, shown)


def require_all(person: Person, role: Role, shown: JobShown) -> None:
    """Raises Forbidden, with the first lane for which the person lacks the role."""
    for lane in shown.lanes:
        person.require(role, lane)
    if not may_act(person, role, shown):
        raise Forbidden(role)


def may_approve(person: Person, shown: JobShown) -> bool:
    """Returns whether the person is another than the one who made or started the job, and an approver."""
    job = shown.job
    own = same_person(job.author, person.name) or same_person(job.started_by, person.name)
    return not own and may_act(person, Role.APPROVER, shown)


def _may(person: Person, role: Role, shown: JobShown) -> bool:
    if shown.lanes:
        return all(person.may(role, lane) for lane in shown.lanes)
    return person.everywhere(role) or same_person(shown.job.author, person.name)
