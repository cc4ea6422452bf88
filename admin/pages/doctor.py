"""`/doctor`: the last result of doctor, and a run of it. A run is bounded in time; one goes at a time."""

from __future__ import annotations

import socket
import threading
from typing import Final

from litestar import get, post

from admin.access import Role, needs
from admin.pages.policy.draft import policy_now
from admin.parts import ConsoleParts
from admin.web.forms import WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page
from backends.settings import SettingsError
from idempotency.error_mapping import errors
from producer.doctor.diagnosis import Diagnosis
from producer.doctor.examination import examine
from producer.doctor.gathering import Inquiry
from producer.doctor.rule import Severity
from producer.doctor.runs import DoctorRuns

RUN_S: Final = 15.0
"""Longest time of Kafka's answers: a person waits."""
_running = threading.Lock()
"""Held by the request that runs doctor."""


@get("/doctor", opt=needs(Role.OPERATOR), sync_to_thread=True)
def doctor_page(view: GivenView, parts: GivenParts) -> Page:
    """The last result. It comes from the primary: after a run the person must see it."""
    with errors():
        last = _runs(parts).last()
    counts = {one.value: last.diagnosis.count(one) for one in Severity} if last else {}
    return view.page("doctor.html", last=last, counts=counts)


@post("/doctor", opt=needs(Role.OPERATOR), status_code=200, sync_to_thread=True)
def run_doctor(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Runs doctor as seen from this host. Its result and its row in the audit are one transaction. Raises
    WrongForm."""
    reason = form.reason()
    if not _running.acquire(blocking=False):
        raise WrongForm("doctor.running", "reason")
    try:
        found = _examined(parts)
    finally:
        _running.release()
    runs = _runs(parts)
    with errors(), parts.databases.primary.begin() as connection:
        runs.add(connection, found, host=socket.gethostname(), person=person.name)
        parts.journal.record(
            connection,
            person=person.name,
            action="doctor.run",
            subject=f"{found.count(Severity.ERROR)} errors, {len(found.unknown)} not known",
            reason=reason,
            address=view.address,
        )
    return view.redirect("/doctor")


def _examined(parts: ConsoleParts) -> Diagnosis:
    """Runs doctor. Raises WrongForm for a configuration that no Kafka client takes."""
    with errors():
        before = _runs(parts).partitions()
    try:
        policy = policy_now(parts).policy
        return examine(parts.settings, policy, Inquiry(run_s=RUN_S), before)
    except SettingsError as exc:
        raise WrongForm("doctor.wrong_settings", "reason", cause=str(exc)) from exc


def _runs(parts: ConsoleParts) -> DoctorRuns:
    return DoctorRuns(parts.databases.primary, parts.databases.clock)


HANDLERS = [doctor_page, run_doctor]
