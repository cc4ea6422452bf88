"""Letters that a person may see, or act on: those of its lanes; those without a lane need all lanes."""

from __future__ import annotations

from typing import Final, NamedTuple

from admin.access import Forbidden, Person, Role
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from backends.durations import milliseconds
from idempotency.dead_letters.browsing import LetterBrowser
from idempotency.dead_letters.rows import ANYWHERE, OLDEST, IndexedLetter, LetterFilter, LetterState
from message.vocabulary import LANES

SINCE: Final = ("1h", "24h", "7d")
"""Ages that the filter offers; without one: as long as Kafka keeps letters."""
LANE_NAMES: Final = tuple(lane.name for lane in LANES)


class AskedLetters(NamedTuple):
    """The filter as it is in an address. Unknown values count as none."""

    state: str = LetterState.OPEN
    """Empty: all."""
    reason: str = ""
    lane: str = ""
    since: str = ""

    def filter(self, person: Person, role: Role, now_ms: int) -> LetterFilter:
        """Returns the filter on the letters for which the person has the role."""
        age = milliseconds(self.since) if self.since in SINCE else None
        return LetterFilter(
            state=self.state if self.state in set(LetterState) else "",
            reason=self.reason[:64],
            lanes=_lanes(person, role, self.lane),
            since=now_ms - age if age else OLDEST,
        )


def _lanes(person: Person, role: Role, lane: str) -> tuple[str, ...] | None:
    if lane:
        return tuple(person.among([lane], role))
    return ANYWHERE if person.everywhere(role) else tuple(person.among(LANE_NAMES, role))


def pages_of(parts: ConsoleParts) -> LetterBrowser:
    """Returns the index for a page."""
    return LetterBrowser(parts.databases.reads, parts.databases.reads_clock)


def actions_of(parts: ConsoleParts) -> LetterBrowser:
    """Returns the index for an action: on the primary."""
    return LetterBrowser(parts.databases.primary, parts.databases.clock)


def visible_letter(browser: LetterBrowser, person: Person, origin: str) -> IndexedLetter:
    """Returns the letter. Raises Missing for one that is not there, or is not for this person."""
    found = browser.one(origin) if origin and "\0" not in origin else None
    if found is None or not _may(person, Role.VIEWER, found.lane):
        raise Missing(origin)
    return found


def letter_to_act_on(browser: LetterBrowser, person: Person, origin: str) -> IndexedLetter:
    """Returns the letter. Raises Missing as `visible_letter`, and Forbidden for one that is only seen."""
    found = visible_letter(browser, person, origin)
    if not _may(person, Role.OPERATOR, found.lane):
        raise Forbidden(Role.OPERATOR, found.lane)
    return found


def may_act_on(person: Person, letter: IndexedLetter) -> bool:
    """Returns whether the person is an operator of the letter's lane."""
    return _may(person, Role.OPERATOR, letter.lane)


def _may(person: Person, role: Role, lane: str) -> bool:
    return person.may(role, lane) if lane else person.everywhere(role)
