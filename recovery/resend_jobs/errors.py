"""The error of a person's order about a resend job."""

from __future__ import annotations


class ResendJobRefused(Exception):
    """The order was not carried out; the text says why, in one sentence."""
