"""Claims → the user. Nobody comes in who was not let in: by an admin beforehand, or by a claim with roles.

1. A user with the token's issuer and subject.
2. A user that an admin added without a password under the e-mail address, which the provider has verified.
   The first sign-in binds it to the subject.
3. With `console.oidc_roles_claim`: anybody whose claim gives a role; the user is added. The roles of all
   users of the provider follow the claim at each sign-in, and without a role nobody comes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection

from admin.access import ANY_LANE, Role
from admin.audit.journal import Journal
from admin.oidc.id_token import OidcRefused
from admin.oidc.settings import OidcSettings
from admin.people.users import NAME, ConsoleUser, UserRefused, Users, UserState, written

BY: Final = "oidc"
"""Name in the audit of changes that a sign-in makes."""
_UNKNOWN: Final = "login.oidc_unknown"


class OidcMembers:
    """Finds users in the caller's transaction."""

    def __init__(self, settings: OidcSettings, users: Users, journal: Journal) -> None:
        self._settings = settings
        self._users = users
        self._journal = journal

    def user_of(self, connection: Connection, claims: dict[str, Any], address: str) -> ConsoleUser:
        """Returns the active user of checked claims. Raises OidcRefused."""
        subject = f"{self._settings.issuer} {claims['sub']}"
        roles = self._roles(claims)
        found = self._users.of_subject(connection, subject)
        if found is None:
            found = self._bound(connection, claims, subject, address)
        if found is None and roles:
            found = self._added(connection, claims, subject, address)
        if found is None or found.state != UserState.ACTIVE:
            raise OidcRefused(_UNKNOWN, "no active user")
        if roles is not None and _lanes_of(roles) != _lanes_of(found.roles):
            found = self._with_roles(connection, found, roles, address)
        return found

    def _roles(self, claims: dict[str, Any]) -> dict[Role, tuple[str, ...]] | None:
        """Returns the roles that the claim gives; None if claims give none here. Raises OidcRefused."""
        if not self._settings.roles_claim:
            return None
        values = claims.get(self._settings.roles_claim)
        groups = [values] if isinstance(values, str) else values
        found: dict[Role, tuple[str, ...]] = {}
        for group in groups if isinstance(groups, list) else []:
            for role, lanes in self._settings.roles.get(str(group), {}).items():
                both = dict.fromkeys((*found.get(role, ()), *lanes))
                found[role] = (ANY_LANE,) if ANY_LANE in both else tuple(both)
        if not found:
            raise OidcRefused("login.oidc_no_role", self._settings.roles_claim)
        return found

    def _bound(
        self, connection: Connection, claims: dict[str, Any], subject: str, address: str
    ) -> ConsoleUser | None:
        mail = _verified_mail(claims)
        found = self._users.named(connection, mail) if mail else None
        if found is None or found.password_hash or found.state != UserState.ACTIVE:
            return None
        self._users.lock_roles(connection)
        if not self._users.bind_subject(connection, found.id, subject):
            return None  # it is another person's already
        self._record(connection, "user.oidc", found.name, subject, address)
        return found

    def _added(
        self, connection: Connection, claims: dict[str, Any], subject: str, address: str
    ) -> ConsoleUser:
        name = _verified_mail(claims)
        if not name:
            raise OidcRefused("login.oidc_mail", "no verified e-mail address")
        self._users.lock_roles(connection)
        try:
            number = self._users.add(connection, name, by=BY, subject=subject)
        except UserRefused as exc:
            raise OidcRefused(_UNKNOWN, exc) from exc
        self._record(connection, "user.add", name, subject, address)
        added = self._users.numbered(connection, number)
        assert added is not None  # in the same transaction
        return added

    def _with_roles(
        self,
        connection: Connection,
        found: ConsoleUser,
        roles: dict[Role, tuple[str, ...]],
        address: str,
    ) -> ConsoleUser:
        try:
            self._users.set_roles(connection, found.id, roles)
        except UserRefused as exc:
            raise OidcRefused(str(exc)) from exc
        self._record(connection, "user.role", found.name, written(roles), address)
        return self._users.numbered(connection, found.id) or found

    def _record(
        self, connection: Connection, action: str, name: str, reason: str, address: str
    ) -> None:
        self._journal.record(
            connection, person=BY, action=action, subject=name, reason=reason, address=address
        )


def _lanes_of(roles: Mapping[Role, tuple[str, ...]]) -> dict[Role, frozenset[str]]:
    """Returns the roles for a comparison: a claim gives its groups in any order."""
    return {role: frozenset(lanes) for role, lanes in roles.items()}


def _verified_mail(claims: dict[str, Any]) -> str:
    """Returns the address in lower case; empty unless the provider says that it is the person's."""
    mail = claims.get("email")
    if claims.get("email_verified") is not True or not isinstance(mail, str):
        return ""
    return mail.lower() if NAME.fullmatch(mail) else ""
