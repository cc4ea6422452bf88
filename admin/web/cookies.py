"""Cookies of the console. With TLS their names begin with `__Host-`: no other host can set them."""

from __future__ import annotations

from typing import Final, Literal

from litestar.datastructures import Cookie

SESSION: Final = "hongyan-session"
BEFORE_LOGIN: Final = "hongyan-login"
LANGUAGE: Final = "hongyan-language"
THEME: Final = "hongyan-theme"
_YEAR_S: Final = 365 * 24 * 3_600


def cookie_name(name: str, secure: bool) -> str:
    """Returns the name as the browser has it."""
    return f"__Host-{name}" if secure else name


def secret_cookie(
    name: str, value: str, *, secure: bool, max_age: int | None = None, lax: bool = True
) -> Cookie:
    """Returns a cookie that no script reads. `lax` lets it come along when a link is followed."""
    samesite: Literal["lax", "strict"] = "lax" if lax else "strict"
    return Cookie(
        key=cookie_name(name, secure),
        value=value,
        path="/",
        httponly=True,
        secure=secure,
        samesite=samesite,
        max_age=max_age,
    )


def choice_cookie(name: str, value: str, *, secure: bool) -> Cookie:
    """Returns a cookie that keeps a choice of looks for a year."""
    return secret_cookie(name, value, secure=secure, max_age=_YEAR_S)


def ended_cookie(name: str, *, secure: bool) -> Cookie:
    """Returns the cookie that removes another one."""
    return secret_cookie(name, "", secure=secure, max_age=0)
