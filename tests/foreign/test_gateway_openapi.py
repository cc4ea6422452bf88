"""`schemathesis` reads the gateway's OpenAPI, and finds no answer that the document does not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis import checks as known_checks

from backends.settings import DatabaseSettings, Settings, TraceSettings
from idempotency.sql_ledger import clock_of
from producer.gateway.api_keys import KeyScope, terms_of
from producer.gateway.http_app import HANDLERS, build_gateway
from producer.gateway.key_store import KeyStore
from producer.gateway.openapi import document
from producer.gateway.wiring import open_gateway
from tests.harness.databases import upgraded
from tests.producer.gateway.conftest import MemoryPublisher, bearer

EXAMPLES = 20


@pytest.fixture
def described(sqlite_database: str) -> Iterator[tuple[Any, str]]:
    settings = Settings(
        database=DatabaseSettings(url=sqlite_database),
        trace=TraceSettings(kafka=False, database=False),
    )
    upgraded(settings)
    with ExitStack() as stack:
        opened = open_gateway(settings, stack, MemoryPublisher())
        database = opened.endpoint.parts.stories._database
        store = KeyStore(database, clock_of(database))
        with database.begin() as connection:
            terms = terms_of([*KeyScope], [], 1e6, 1_000_000)
            token = store.add(connection, "shop", terms, by="test").token
        opened.ring.look()
        app = build_gateway(opened.endpoint, access_log=False)
        yield schemathesis.openapi.from_asgi("/openapi.json", app), token


@pytest.mark.parametrize("mode", [*GenerationMode])
def test_every_answer_is_as_the_document_says(
    described: tuple[Any, str], mode: GenerationMode
) -> None:
    schema, token = described
    asked = []
    for result in schema.get_all_operations():
        operation = result.ok()

        @hypothesis.settings(max_examples=EXAMPLES, deadline=None, database=None)
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            # A body that the schema takes may be refused: docs/producing.md has the rules beyond it.
            # A batch answers 207 for items that the schema refuses, with a problem for each.
            excluded = [known_checks.positive_data_acceptance]
            if case.path.endswith(":batch"):
                excluded.append(known_checks.negative_data_rejection)
            case.call_and_validate(headers=bearer(token), excluded_checks=excluded)

        ask()
        asked.append(operation.label)
    assert len(asked) == len(HANDLERS) - 1  # without the document itself


def test_each_operation_names_what_any_may_answer() -> None:
    found = document()
    answers = found["components"]["responses"]
    assert [name for name, one in answers.items() if "Retry-After" in one.get("headers", {})] == [
        "409",
        "429",
        "503",
    ]
    for item in found["paths"].values():
        for operation in item.values():
            assert {"405", "500"} <= {*operation["responses"]}


def test_the_document_names_every_route() -> None:
    found = {
        (path.replace(":path}", "}"), str(method).lower())
        for handler in HANDLERS
        for path in handler.paths
        for method in handler.http_methods
        if method in ("GET", "POST")
    }
    described = {(path, method) for path, item in document()["paths"].items() for method in item}
    assert found == described
