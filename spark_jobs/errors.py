"""Errors of the Spark jobs.

SparkTrouble           one sentence that says what to do
├── NoSpark            Java, PySpark or a jar is missing, or the session did not start, or ended
└── WarehouseTrouble   a table of the warehouse cannot be read or written
"""

from __future__ import annotations


class SparkTrouble(Exception):
    """Base of the ladder."""


class NoSpark(SparkTrouble):
    """Java, PySpark or a jar is missing, or the session did not start, or ended by itself."""


class WarehouseTrouble(SparkTrouble):
    """A table of the warehouse cannot be read or written."""
