"""The published schemas agree with the decoder, by the word of validators of others.

`jsonschema` (Python) judges by Draft 2020-12; `ajv` (npm) does, too, with the patterns of ECMAScript. The
AsyncAPI document is judged by `@asyncapi/parser` (npm), AsyncAPI's own.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from message.envelope import MAX_BYTES, EnvelopeError, decode
from message.outcome_event import ANNOUNCED, OutcomeEvent
from message.schemas import outcome
from message.schemas.asyncapi import asyncapi
from message.schemas.envelope import EXAMPLE, UNSAID, envelope_schema
from message.schemas.outcome import outcome_schema
from message.vocabulary import CHANNELS, KINDS, LANES
from tests.foreign.envelope_cases import REMOVED, cases, changed, good, taken
from tests.foreign.node_programs import ready

JUDGES: Final = Path(__file__).parent / "asyncapi"
SCHEMA: Final = envelope_schema()
VALIDATOR: Final = Draft202012Validator(SCHEMA)
CASES: Final = cases()


def node(program: str, asked: Any) -> Any:
    """Returns the answer of a program of Node, as JSON."""
    done = subprocess.run(
        ["node", str(ready(JUDGES) / program)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_schema_is_one_of_its_draft() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert VALIDATOR.is_valid(EXAMPLE)
    assert taken(EXAMPLE)


def test_schema_and_decoder_agree_at_every_edge() -> None:
    for case in CASES:
        assert taken(case.envelope) is case.good, case
        assert VALIDATOR.is_valid(case.envelope) is case.good, case


@pytest.mark.parametrize("whole", [None, True, 7, "x", [], [good()], {}])
def test_a_value_that_is_no_envelope_is_refused_by_both(whole: Any) -> None:
    assert not taken(whole)
    assert not VALIDATOR.is_valid(whole)


BODIES: Final = [
    {**good(), "template": template, "content": content}
    for template, content in (
        (None, None),
        ({"id": "x"}, {"text": "x"}),
        ({"id": "x"}, 7),
        (7, {"text": "x"}),
    )
]
"""Both of template and content, neither, and one of another type beside the other."""


def test_both_or_neither_of_template_and_content_is_refused_by_both() -> None:
    for envelope in BODIES:
        assert not taken(envelope)
        assert not VALIDATOR.is_valid(envelope)
    envelope = {**good(), "content": None}
    assert taken(envelope)
    assert VALIDATOR.is_valid(envelope)


def limits(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yields the path of each keyword that limits anything."""
    named = path[-1:] == ("properties",)
    silent = ("description", "title", "default", "examples", "$schema", "$id")
    if isinstance(node, dict):
        for key, value in node.items():
            if not named and key in silent:
                continue
            if not named and key not in ("properties", "items", "anyOf", "oneOf"):
                yield (*path, key)
            if key != "not":
                yield from limits(value, (*path, key))
    elif isinstance(node, list) and path[-1:] in (("anyOf",), ("oneOf",)):
        for number, value in enumerate(node):
            yield from limits(value, (*path, number))


IMPLIED: Final = {
    ("type",): "oneOf",
    ("properties", "template", "anyOf", 0, "type"): "oneOf",
    ("properties", "content", "anyOf", 0, "type"): "oneOf",
    ("properties", "receivers", "items", "minLength"): "pattern",
}
"""Keywords that another one implies; they are there for readers and generators of code."""


def test_each_limit_of_the_schema_is_held_by_a_case() -> None:
    found = [path for path in limits(SCHEMA) if path not in IMPLIED and not _typed(path)]
    assert len(found) > 35
    assert [path for path in found if not _missed(path)] == []


def _typed(path: tuple[str | int, ...]) -> bool:
    """Returns whether it is a `type` beside a keyword that no other type meets."""
    place: Any = SCHEMA
    for key in path[:-1]:
        place = place[key]
    return path[-1] == "type" and not place.keys().isdisjoint({"enum", "const", "not"})


def _missed(path: tuple[str | int, ...]) -> bool:
    """Returns whether some case is judged otherwise without the keyword at that path."""
    cut: Any = copy.deepcopy(SCHEMA)
    place = cut
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    validator = Draft202012Validator(cut)
    field = path[1] if path[0] == "properties" else None
    near = [case for case in CASES if field is None or case.field.partition(".")[0] == field]
    if any(validator.is_valid(case.envelope) is not case.good for case in near):
        return True
    return any(validator.is_valid(one) for one in BODIES)


TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(-1e9, 1e9).filter(lambda x: x % 1)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
"""Any JSON, but for numbers such as 1.0: a whole number to JSON Schema, and no integer to the decoder."""
PLACES: Final = (*good(), "content", "template.id", "template.params", "unknown")
NEAR: Final = {
    "id": st.text(st.characters(min_codepoint=0x1E, max_codepoint=0x82), max_size=66),
    "channel": st.sampled_from(CHANNELS),
    "kind": st.sampled_from(KINDS),
    "receivers": st.lists(TEXTS, max_size=4),
    "created_at": st.integers(-2, 260_000_000_000_000),
    "ttl_ms": st.integers(-3, 3) | st.none(),
    "v": st.integers(-1, 3),
}
"""Values about the limits of a field."""


@st.composite
def envelopes(draw: st.DrawFn) -> dict[str, Any]:
    """An envelope that is changed in one place, for the better or the worse."""
    field = draw(st.sampled_from(PLACES))
    value = draw(st.one_of(NEAR.get(field, TEXTS), JSON, st.just(REMOVED)))
    absent = value is REMOVED and field in ("content", "unknown")
    return good() if absent else changed(field, value)


@settings(max_examples=300, deadline=None)
@given(envelopes())
def test_schema_and_decoder_agree_about_any_change(envelope: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid(envelope) is taken(envelope)


def raw(**changes: str) -> bytes:
    """A good envelope with members written as they are given."""
    written = {name: json.dumps(value) for name, value in good().items()} | changes
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in written.items()) + "}").encode()


BEYOND: Final = {
    "more than a mebibyte": raw(attributes=json.dumps({"x": "y" * MAX_BYTES})),
    "a byte order mark": b"\xef\xbb\xbf" + raw(),
    "a fraction": raw(created_at="1790000000000.0"),
    "an exponent": raw(ttl_ms="1e3"),
    "a number beyond a double": raw(template='{"id": "x", "params": {"n": 1e999}}'),
    "half a surrogate pair": raw(biz_id='"\\ud800"'),
}
"""Values that the schema takes and the decoder refuses: `UNSAID` names each of these rules."""


@pytest.mark.parametrize("value", BEYOND.values(), ids=BEYOND)
def test_a_rule_that_json_schema_cannot_say_is_the_decoders(value: bytes) -> None:
    assert VALIDATOR.is_valid(json.loads(value))
    with pytest.raises(EnvelopeError):
        decode(value)


def test_the_page_names_each_rule_beyond_the_schema() -> None:
    page = (Path(__file__).parents[2] / "docs" / "producing.md").read_text()
    listed = " ".join(page.split())
    assert [rule for rule in UNSAID if rule not in listed] == []


@pytest.mark.soak(small="::test_schema_and_decoder_agree_about_any_change")
def test_patterns_mean_the_same_in_javascript() -> None:
    asked = {"schema": SCHEMA, "values": [case.envelope for case in CASES]}
    verdicts = node("validate.mjs", asked)
    assert [case for case, well in zip(CASES, verdicts, strict=True) if well is not case.good] == []


def faulty() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields documents with one fault each, and what the fault is about."""
    for place, key, value in (
        ("operations.receiveNotification", "action", "publish"),
        ("operations.sendOutcome.channel", "$ref", "#/channels/nowhere"),
        ("components.messages.notification.payload", "type", "objekt"),
    ):
        document = asyncapi()
        node: Any = document
        for step in place.split("."):
            node = node[step]
        node[key] = value
        yield place, document


def faults_of(document: dict[str, Any]) -> list[str]:
    """Returns what is wrong with a document, as far as three rules see it."""
    refs = {one["$ref"] for one in _objects(document) if isinstance(one.get("$ref"), str)}
    actions = {one["action"] for one in document["operations"].values()}
    payloads = [one["payload"] for one in document["components"]["messages"].values()]
    return [
        *(f"{ref} leads nowhere" for ref in sorted(refs) if not _leads_somewhere(document, ref)),
        *(f"{one} is no action of AsyncAPI 3" for one in sorted(actions - {"send", "receive"})),
        *(error.message for one in payloads for error in META.iter_errors(one)),
    ]


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    for one in node if isinstance(node, list) else ():
        yield from _objects(one)


def _leads_somewhere(document: dict[str, Any], ref: str) -> bool:
    node: Any = document
    for step in ref.removeprefix("#/").split("/"):
        node = node.get(step) if isinstance(node, dict) else None
    return node is not None


def test_the_document_leads_nowhere_wrong_and_names_known_actions_and_types() -> None:
    assert faults_of(asyncapi()) == []
    assert [place for place, document in faulty() if not faults_of(document)] == []


@pytest.mark.soak(small="::test_the_document_leads_nowhere_wrong_and_names_known_actions_and_types")
def test_asyncapis_own_parser_takes_the_document_and_no_faulty_one() -> None:
    places, documents = zip(*faulty(), strict=True)
    whole, *answers = node("parse.mjs", [asyncapi(), *documents])
    assert whole["problems"] == []
    assert sorted(whole["channels"]) == ["dispatch", "outcomes"]
    taken_in = [place for place, one in zip(places, answers, strict=True) if not one["problems"]]
    assert taken_in == []


META: Final = Draft202012Validator(Draft202012Validator.META_SCHEMA)
OUTCOME: Final = Draft202012Validator(outcome_schema())
_DIGEST: Final = st.text("0123456789abcdef", min_size=32, max_size=32)
_NAME: Final = st.none() | TEXTS
EVENTS: Final = st.builds(
    OutcomeEvent,
    event_id=_DIGEST,
    id=TEXTS,
    biz_id=_NAME,
    channel=st.sampled_from(CHANNELS),
    kind=st.sampled_from(KINDS),
    lane=st.sampled_from([lane.name for lane in LANES]),
    receiver_hash=st.none() | _DIGEST.map(lambda half: half * 2),
    receiver_mask=TEXTS,
    state=st.sampled_from(sorted(ANNOUNCED)),
    reason=_NAME,
    provider_code=_NAME,
    provider_id=_NAME,
    account=_NAME,
    attempt=st.integers(0, 1_000),
    delivery_key=_DIGEST,
    created_at=st.integers(0, 2**53),
    ended_at=st.integers(0, 2**53),
    resend_of=_NAME,
)


@settings(max_examples=100, deadline=None)
@given(EVENTS)
def test_every_outcome_event_fits_its_schema(event: OutcomeEvent) -> None:
    OUTCOME.validate(json.loads(msgspec.json.encode(event)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("v", one) for one in (0, 2, "1", None)),
        *((name, one) for name in ("event_id", "delivery_key") for one in ("", "a" * 31, "G" * 32)),
        *(("receiver_hash", one) for one in ("", "a" * 32, "x" * 64, 7)),
        *(("state", one) for one in ("RETRY", "IN_FLIGHT", "UNKNOWN", "sent", None)),
        *((name, "fax") for name in ("channel", "kind", "lane")),
        *((name, -1) for name in ("attempt", "created_at", "ended_at")),
        *((name, None) for name in ("id", "receiver_mask", "channel", "attempt")),
    ],
)
def test_a_wrong_outcome_event_is_refused(field: str, value: Any) -> None:
    assert OUTCOME.is_valid(outcome.EXAMPLE)
    assert not OUTCOME.is_valid({**outcome.EXAMPLE, field: value})


def test_an_outcome_event_has_every_field_and_may_get_more() -> None:
    assert set(outcome.EXAMPLE) == set(OutcomeEvent.__struct_fields__)
    for field in OutcomeEvent.__struct_fields__:
        left = {name: value for name, value in outcome.EXAMPLE.items() if name != field}
        assert not OUTCOME.is_valid(left), field
    assert OUTCOME.is_valid({**outcome.EXAMPLE, "more": 1})
    assert msgspec.convert(outcome.EXAMPLE, OutcomeEvent).v == 1
