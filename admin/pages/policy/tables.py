"""`/policy/table`: a form of one table's fields, made from the schema. It edits the text in force."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from litestar import get, post
from litestar.params import FromQuery

from admin.access import Role, needs
from admin.pages.policy.draft import checked, editor, policy_now
from admin.pages.policy.toml_edit import UNSET, NotEditable, edited, own_values
from admin.web.errors import Missing
from admin.web.forms import Conflict, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenView
from admin.web.view import Page
from message.vocabulary import KINDS, LANES, lane_named
from policy.schema import LanePolicy
from policy.schema_fields import PolicyField, policy_fields

_TRUTH: Final = {"true": True, "false": False}


class FormField(NamedTuple):
    """One field of the form."""

    field: PolicyField
    value: str
    """As the table has it; empty: the table does not set it."""
    effective: str = ""
    """As the lane has it, for the table of one lane; empty: unknown."""


@get("/policy/table", opt=needs(Role.POLICY_ADMIN), sync_to_thread=True)
def table_page(view: GivenView, parts: GivenParts, name: FromQuery[str] = "defaults") -> Page:
    """The form of one table. Raises Missing."""
    now = policy_now(parts)
    own = own_values(now.text, path_of(name))
    lane = lane_named(name.removeprefix("lanes."))
    policy = now.policy.of(lane) if lane is not None else None
    fields = [
        FormField(
            field,
            written(own.get(field.key)),
            written(value_in(policy, field)) if policy is not None else "",
        )
        for field in policy_fields()
    ]
    return view.page(
        "policy/table.html", name=name, fields=fields, base=now.number, tables=tables_in(now.text)
    )


@post("/policy/table", opt=needs(Role.POLICY_ADMIN), status_code=200, sync_to_thread=True)
def check_table(view: GivenView, parts: GivenParts, form: GivenForm) -> Page:
    """Shows the effects of the form's text. Raises WrongForm, Conflict, Missing."""
    now, path = policy_now(parts), path_of(form.required("name"))
    base = form.number("base")
    if base != now.number:
        raise Conflict("policy.overtaken", cause=now.policy.version)
    own = own_values(now.text, path)
    changed = {}
    for field in policy_fields():
        sent = form.text(f"field_{field.key}")
        if sent != written(own.get(field.key)):
            changed[field.key] = value_of(field, sent)
    if not changed:
        raise WrongForm("policy.same")
    try:
        text = edited(now.text, path, changed)
    except NotEditable:
        return editor(
            view, now.text, base, note=view.text("policy.not_editable", name=form.text("name"))
        )
    return checked(view, parts, text, base)


def value_in(policy: LanePolicy, field: PolicyField) -> Any:
    """Returns the value of a lane's field."""
    content = msgspec.to_builtins(policy)
    return (content[field.table] if field.table else content)[field.key.rpartition(".")[2]]


def path_of(name: str) -> Sequence[str]:
    """Returns the path of `defaults`, `defaults.KIND` or `lanes.PATTERN`. Raises Missing."""
    head, _, rest = name.partition(".")
    if head == "defaults" and (not rest or rest in KINDS):
        return (head, rest) if rest else (head,)
    if head == "lanes" and any(lane.fits(rest) for lane in LANES):
        return head, rest
    raise Missing(name)


def tables_in(text: str) -> list[str]:
    """Returns the tables of a policy, then those that it could have: kinds, and every lane."""
    named = [f"lanes.{name}" for name in tomllib.loads(text).get("lanes", {})]
    possible = ["defaults", *(f"defaults.{kind}" for kind in KINDS)]
    lanes = [f"lanes.{lane.name}" for lane in LANES]
    return list(dict.fromkeys([*possible, *named, *lanes]))


def written(value: Any) -> str:
    """Returns a value as its field shows it; empty for none."""
    if value is None:
        return ""
    if isinstance(value, dict):
        inside = ", ".join(f"{json.dumps(key)} = {written(one)}" for key, one in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list):
        some = (
            json.dumps(one, ensure_ascii=False) if isinstance(one, str) else written(one)
            for one in value
        )
        return f"[{', '.join(some)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_of(field: PolicyField, sent: str) -> Any:
    """Returns the value of a field as it was sent; UNSET for an empty one. The policy's parser checks it.

    Raises WrongForm for a text that is no value.
    """
    if not sent:
        return UNSET
    if field.kind in ("choice", "text"):
        return sent
    if field.kind == "bool":
        return _TRUTH.get(sent, sent)
    try:
        content = tomllib.loads(f"value = {sent}")
    except tomllib.TOMLDecodeError:
        content = {}
    if content.keys() != {"value"}:
        raise WrongForm("policy.no_value", f"field_{field.key}", name=field.key, value=sent[:100])
    return content["value"]


HANDLERS = [table_page, check_table]
