"""Extras of the installed program: which of them a command needs, and the sentence for a missing one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from importlib.util import find_spec
from typing import Any, Final

import typer

from backends.settings import Settings
from hongyan.errors import WrongUsage
from hongyan.usage.command_line import name_of

MODULES: Final = {
    "worker": (
        *("alembic", "certifi", "confluent_kafka", "cryptography", "email_validator", "h2"),
        *("httptools", "httpx", "jinja2", "prometheus_client", "psycopg", "pycurl", "redis"),
        *("sqlalchemy", "tenacity"),
    ),
    "receipts": ("litestar", "uvicorn"),
    "recovery": ("celery", "kombu"),
    "console": ("argon2", "authlib", "cronsim", "joserfc", "litestar", "tomlkit", "uvicorn"),
    "producer": ("cronsim", "litestar", "uvicorn"),
    "lookback": ("grpc",),
    "mysql": ("pymysql",),
    "simulator": ("aiosmtpd", "uvloop"),
    "otel": ("opentelemetry",),
    "spark": ("deltalake", "pyspark", "rbloom"),
}
"""Modules that each extra of pyproject.toml brings, without those of `worker`."""
_ON_WORKER: Final = ("receipts", "recovery", "console", "producer", "lookback")
COMMANDS: Final = {
    "demo": ("worker", "simulator"),
    "dev": ("worker", "simulator"),
    "worker": ("worker",),
    "receipts": ("worker", "receipts"),
    "relay": ("worker",),
    "gateway": ("worker", "producer"),
}
"""Commands that are checked before they begin: they start processes, or fail late."""


def guard(app: typer.Typer) -> None:
    """Lets the commands of COMMANDS check their extras first. Call it once all are registered."""
    for info in app.registered_commands:
        name = name_of(info)
        if info.callback is not None and name in COMMANDS:
            info.callback = _guarded(name, info.callback)


def _guarded(name: str, command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        missing = missing_of(COMMANDS[name])
        if missing:
            raise WrongUsage(_sentence(f"hongyan {name}", missing, COMMANDS[name]))
        return command(*arguments, **options)

    return run


def require_telemetry(settings: Settings) -> None:
    """Raises WrongUsage if spans are asked for and their extra is not installed."""
    if settings.telemetry.otlp_endpoint and (missing := missing_of(("otel",))):
        raise WrongUsage(_sentence("telemetry.otlp_endpoint", missing, ("otel",)))


def missing_of(extras: Iterable[str]) -> list[str]:
    """Returns the modules of these extras that are not installed."""
    return [name for extra in extras for name in MODULES[extra] if find_spec(name) is None]


def sentence_for(exc: BaseException) -> str:
    """Returns the sentence for an import that failed for a missing extra; empty for another error."""
    if not isinstance(exc, ModuleNotFoundError) or not exc.name:
        return ""
    module = exc.name.partition(".")[0]
    extra = next((name for name, some in MODULES.items() if module in some), "")
    return _sentence("this command", [module], (extra,)) if extra else ""


def _sentence(who: str, missing: list[str], extras: Iterable[str]) -> str:
    named = [one for one in extras if not (one == "worker" and set(_ON_WORKER) & set(extras))]
    is_, them = ("is", "it") if len(missing) == 1 else ("are", "them")
    return (
        f"{who} needs {', '.join(missing)}, which {is_} not installed; to get {them}, type:"
        f" pip install 'hongyan[{','.join(named)}]'"
    )
