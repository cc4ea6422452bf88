"""The page of API keys: who sees it, a secret shown once, rotation, revocation, audit."""

import re
from collections.abc import Callable

from admin.access import Role
from admin.audit.journal import AuditFilter
from admin.parts import ConsoleParts
from producer.gateway.key_store import KeyStore
from tests.admin.conftest import Browser

Open = Callable[[], Browser]
User = Callable[..., int]
TOKEN = re.compile(r"hyk_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")
NEW = {"name": "shop", "scope_send": "1", "lanes": "sms.*", "rate": "10", "burst": "20"}


def admin(browser: Open, user: User) -> Browser:
    user("lin", {Role.ADMIN: ("*",)})
    lin = browser()
    lin.sign_in("lin")
    return lin


def test_a_secret_is_shown_once_and_never_again(
    parts: ConsoleParts, browser: Open, user: User
) -> None:
    lin = admin(browser, user)
    assert lin.post("/keys", **NEW).status_code == 422  # without a reason
    made = lin.post("/keys", **NEW, reason="the new shop")
    (token,) = TOKEN.findall(made.text)
    assert made.headers["cache-control"] == "no-store"
    assert TOKEN.search(lin.get("/keys").text) is None
    (key,) = KeyStore(parts.databases.primary, parts.databases.clock).live().values()
    assert (key.name, key.terms.lanes) == ("shop", ("sms.*",))
    rows = parts.journal.page(AuditFilter(action="key.new"), 10)
    assert [(row.person, row.subject) for row in rows] == [("lin", "shop")]
    assert token not in str(rows) + lin.get("/audit").text


def test_a_key_is_rotated_and_revoked(parts: ConsoleParts, browser: Open, user: User) -> None:
    lin = admin(browser, user)
    store = KeyStore(parts.databases.primary, parts.databases.clock)
    lin.post("/keys", **NEW, reason="the new shop")
    rotated = lin.post("/keys/shop/rotate", hours="1", reason="every spring")
    assert TOKEN.search(rotated.text)
    assert len(store.live()) == 2
    assert lin.post("/keys/shop/revoke", reason="it leaked").status_code == 303
    assert store.live() == {}
    assert lin.post("/keys/shop/rotate", hours="1", reason="again").status_code == 422
    actions = [row.action for row in parts.journal.page(AuditFilter(), 10)]
    assert {"key.new", "key.rotate", "key.revoke"} <= set(actions)


def test_a_key_without_lanes_has_all_and_a_blank_one_is_refused(
    parts: ConsoleParts, browser: Open, user: User
) -> None:
    lin = admin(browser, user)
    assert lin.post("/keys", **(NEW | {"lanes": "sms.*, "}), reason="why").status_code == 422
    assert lin.post("/keys", **(NEW | {"lanes": ""}), reason="why").status_code == 200
    (key,) = KeyStore(parts.databases.primary, parts.databases.clock).live().values()
    assert key.terms.lanes == ("*",)


def test_keys_are_for_admins_of_all_lanes(browser: Open, user: User) -> None:
    user("bo", {Role.ADMIN: ("sms.*",), Role.OPERATOR: ("*",)})
    bo = browser()
    bo.sign_in("bo")
    assert bo.get("/keys").status_code == 403
    assert bo.post("/keys", **NEW, reason="why").status_code == 403
