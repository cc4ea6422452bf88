"""Fields are set in a policy's text, whatever form its tables have; comments stay."""

import tomllib
from typing import Any

import pytest

from admin.pages.policy.toml_edit import UNSET, edited, own_values

TEXT = """# Of the company.
[defaults]
threads = 12 # two machines
retry = { attempts = 3, base_ms = 5 } # by contract
[defaults.notice]
threads = 3
[lanes."sms.*"]
retry.attempts = 4
[lanes."sms.*".breaker]
share = 0.4 # strict
[lanes."email.*".accounts]
main = 1
"""
COMMENTS = ("# Of the company.", "# two machines", "# by contract", "# strict")


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (("defaults",), {"retry.attempts": 9, "threads": 13}),
        (("defaults", "notice"), {"threads": UNSET}),
        (("lanes", "sms.*"), {"breaker.share": 0.2, "retry.factor": 2.5}),
        (("lanes", "sms.*"), {"retry.attempts": UNSET, "quiet_hours.windows": ["22:00-08:00"]}),
        (("lanes", "email.*"), {"accounts": {"main": 1, "spare": 0}}),
        (("lanes", "email.*"), {"accounts": UNSET}),
        (("lanes", "push.notice"), {"threads": 4, "retry.attempts": 3}),
        (("defaults", "marketing"), {"threads": 4}),
    ],
)
def test_fields_are_set_and_nothing_else_changes(path: Any, values: dict[str, Any]) -> None:
    made = edited(TEXT, path, values)
    before, after = own_values(TEXT, path), own_values(made, path)
    for key, value in values.items():
        before.pop(key, None)
        if value is not UNSET:
            assert after.pop(key) == value
    assert after == before
    assert all(one in made for one in COMMENTS)
    others = [("defaults",), ("defaults", "notice"), ("lanes", "sms.*"), ("lanes", "email.*")]
    for other in others:
        if other != path:
            assert own_values(made, other) == own_values(TEXT, other)
    tomllib.loads(made)


def test_an_empty_text_gets_its_first_table() -> None:
    made = edited("", ("lanes", "push.notice"), {"threads": 4})
    assert tomllib.loads(made) == {"lanes": {"push.notice": {"threads": 4}}}
