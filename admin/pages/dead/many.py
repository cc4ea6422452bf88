"""`/dead/many`: all open letters of a filter, the oldest MOST of them: replay or discard them together.

The form carries a digest of the letters that were looked at. If they are others by then, nothing is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from litestar import get, post
from litestar.params import FromQuery

from admin.access import Person, Role, needs
from admin.pages.dead.kafka import replayed
from admin.pages.dead.lanes import AskedLetters, actions_of
from admin.pages.dead.letter import GONE, ended
from admin.parts import ConsoleParts
from admin.web.forms import Conflict, SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from backends.kafka.clients import KafkaTrouble
from backends.settings import SettingsError
from idempotency.dead_letters.rows import IndexedLetter, LetterState
from idempotency.error_mapping import errors
from sending.dead_letters.replay import ReplayStatus

PATH: Final = "/dead/many"
MOST: Final = 500
"""Letters of one action; the next one takes the next ones."""
_SAMPLE: Final = 10
_NOT_TRIED: Final = "not_tried"


class LetterResult(NamedTuple):
    """One letter with its end."""

    letter: IndexedLetter
    fate: str
    why: str = ""


class LetterGroup(NamedTuple):
    """Letters of one lane and reason."""

    lane: str
    reason: str
    letters: int
    replayable: int


@get(PATH, opt=needs(Role.OPERATOR, "lane"), sync_to_thread=True)
def look(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    reason: FromQuery[str] = "",
    lane: FromQuery[str] = "",
    since: FromQuery[str] = "",
) -> Page:
    """The letters that an action would take."""
    asked = AskedLetters(LetterState.OPEN, reason, lane, since)
    chosen, more = _chosen(parts, person, asked)
    return view.page(
        "dead/many.html",
        asked=asked,
        count=len(chosen),
        more=more,
        replayable=sum(one.replayable for one in chosen),
        groups=_groups(chosen),
        sample=chosen[:_SAMPLE],
        digest=_digest(chosen),
    )


@post(f"{PATH}/replay", opt=needs(Role.OPERATOR, "lane"), status_code=200, sync_to_thread=True)
def replay(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Replays them. Raises WrongForm, Conflict, Forbidden."""
    asked, chosen, reason = _confirmed(parts, person, form)
    _record(view, parts, person, "dead.replay", asked, chosen, reason)
    results: dict[str, LetterResult] = {one.origin: LetterResult(one, _NOT_TRIED) for one in chosen}
    trouble = ""
    try:
        for gone, found in replayed(parts, chosen):
            results |= {one.origin: LetterResult(one, GONE) for one in gone}
            for done in found:
                of = results[done.letter.origin]
                results[done.letter.origin] = of._replace(fate=str(done.fate), why=done.why)
            sent = [one.letter.origin for one in found if one.fate is ReplayStatus.REPLAYED]
            ended(parts, sent, LetterState.REPLAYED, person, reason)
    except (KafkaTrouble, SettingsError) as exc:
        trouble = str(exc)
    return _results(view, list(results.values()), trouble)


@post(f"{PATH}/discard", opt=needs(Role.OPERATOR, "lane"), status_code=200, sync_to_thread=True)
def discard(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Puts them away. Raises WrongForm, Conflict, Forbidden."""
    asked, chosen, reason = _confirmed(parts, person, form)
    with errors(), parts.databases.primary.begin() as connection:
        done = actions_of(parts).end(
            connection,
            [one.origin for one in chosen],
            LetterState.DISCARDED,
            person.name,
            reason,
        )
        if len(done) != len(chosen):
            raise Conflict("dead.moved")
        parts.journal.record(
            connection, **_row(view, person, "dead.discard", asked, chosen, reason)
        )
    return _results(view, [LetterResult(one, "discarded") for one in chosen], "")


def _chosen(
    parts: ConsoleParts, person: Person, asked: AskedLetters
) -> tuple[list[IndexedLetter], bool]:
    browser = actions_of(parts)
    wanted = asked.filter(person, Role.OPERATOR, browser.now_ms())
    found = browser.oldest(wanted, MOST + 1)
    return found[:MOST], len(found) > MOST


def _confirmed(
    parts: ConsoleParts, person: Person, form: SentForm
) -> tuple[AskedLetters, list[IndexedLetter], str]:
    """Returns filter, letters and reason of a form whose count fits and whose letters are the same."""
    reason, count = form.reason(), form.number("typed")
    asked = AskedLetters(LetterState.OPEN, form.text("code"), form.text("lane"), form.text("since"))
    chosen, _more = _chosen(parts, person, asked)
    if not chosen or _digest(chosen) != form.text("digest"):
        raise Conflict("dead.moved")
    if count != len(chosen):
        raise WrongForm("dead.wrong_count", "typed", count=len(chosen))
    return asked, chosen, reason


def _groups(chosen: Sequence[IndexedLetter]) -> list[LetterGroup]:
    every = Counter((one.lane, one.reason) for one in chosen)
    good = Counter((one.lane, one.reason) for one in chosen if one.replayable)
    return [LetterGroup(*pair, count, good[pair]) for pair, count in every.most_common()]


def _digest(chosen: Sequence[IndexedLetter]) -> str:
    return sha256("\n".join(one.origin for one in chosen).encode()).hexdigest()


def _row(
    view: View,
    person: Person,
    action: str,
    asked: AskedLetters,
    chosen: Sequence[IndexedLetter],
    reason: str,
) -> dict[str, str]:
    filters = [f"{name}={value}" for name, value in asked._asdict().items() if value]
    return {
        "person": person.name,
        "action": action,
        "subject": f"{len(chosen)} letters: {' '.join(filters)}",
        "lane": asked.lane,
        "reason": reason,
        "address": view.address,
    }


def _record(
    view: View,
    parts: ConsoleParts,
    person: Person,
    action: str,
    asked: AskedLetters,
    chosen: Sequence[IndexedLetter],
    reason: str,
) -> None:
    parts.journal.record_alone(**_row(view, person, action, asked, chosen, reason))


def _results(view: View, results: Sequence[LetterResult], trouble: str) -> Page:
    sums = Counter(one.fate for one in results)
    return view.page("dead/results.html", results=results, sums=sums.most_common(), trouble=trouble)


HANDLERS = [look, replay, discard]
