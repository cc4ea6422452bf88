"""Errors of a person's resend; each text says what to do."""

from __future__ import annotations


class SelectionRefused(Exception):
    """The selection names a state that its order does not take."""


class ResendNotDone(Exception):
    """The order was not, or only partly, carried out."""
