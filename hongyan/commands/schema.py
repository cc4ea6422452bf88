"""`hongyan schema`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from hongyan.terminal import explained

HELP = explained(
    "Print a published form as JSON: the envelope or the outcome event as JSON Schema (Draft 2020-12), or "
    "the topics as AsyncAPI 3.0. The folder docs/schema/ has the same files.",
    "hongyan schema envelope > envelope.schema.json",
    "hongyan schema outcome > outcome.schema.json",
    "hongyan schema asyncapi > asyncapi.json",
)


class PublishedForm(StrEnum):
    """Names of the documents."""

    ENVELOPE = "envelope"
    OUTCOME = "outcome"
    ASYNCAPI = "asyncapi"


FILES = {
    PublishedForm.ENVELOPE: "envelope.schema.json",
    PublishedForm.OUTCOME: "outcome.schema.json",
    PublishedForm.ASYNCAPI: "asyncapi.json",
}
"""Each document's file in docs/schema/."""


def schema(
    form: Annotated[
        PublishedForm, typer.Argument(metavar="NAME", help="envelope, outcome or asyncapi.")
    ],
) -> None:
    print(text_of(form))


def text_of(form: PublishedForm) -> str:
    """Returns the document as it is printed, without a line feed at its end."""
    return json.dumps(_document(form), indent=2)


def _document(form: PublishedForm) -> dict[str, Any]:
    from message.schemas.asyncapi import asyncapi
    from message.schemas.envelope import envelope_schema
    from message.schemas.outcome import outcome_schema

    made = {
        PublishedForm.ENVELOPE: envelope_schema,
        PublishedForm.OUTCOME: outcome_schema,
        PublishedForm.ASYNCAPI: asyncapi,
    }
    return made[form]()
