"""Errors of the spool. After each of them the record is not in the spool.

SpoolError
 ├─ SpoolFull      the size limit is reached
 ├─ SpoolDamaged   the file was damaged; what could be read is in a new file
 ├─ SpoolAway      the disk or its folder does not work: full, read-only, an input/output error
 └─ SpoolBusy      another process drains
"""

from __future__ import annotations

from hongyan_client.errors import ClientError


class SpoolError(ClientError):
    """Base of the ladder."""


class SpoolFull(SpoolError):
    """The spool has reached its size limit."""


class SpoolDamaged(SpoolError):
    """The spool's file cannot be read in part."""


class SpoolAway(SpoolError):
    """The disk does not keep the record."""


class SpoolBusy(SpoolError):
    """Another process drains the spool."""
