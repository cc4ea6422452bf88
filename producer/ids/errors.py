"""Errors of the ids.

IdTrouble            no id was issued
 ├─ IdsUnavailable   the database does not answer, and no lease is left: try again
 ├─ NoWorkerNumber   all worker numbers are leased
 └─ ClockBehind      the database's clock is behind the ids that were issued
"""

from __future__ import annotations


class IdTrouble(Exception):
    """No id was issued. The text says what to do."""


class IdsUnavailable(IdTrouble):
    """The database does not answer, and the lease is over. A later call tries again."""


class NoWorkerNumber(IdTrouble):
    """Every worker number is leased by a live process."""


class ClockBehind(IdTrouble):
    """The database's clock is too far behind the marks of all free worker numbers."""
