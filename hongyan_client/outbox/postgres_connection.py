"""A connection to PostgreSQL that gives up on a server that does not answer.

Limits of the server, such as `statement_timeout`, do not help against a server or a pooler that is frozen:
its kernel still acknowledges every packet.
"""

from __future__ import annotations

from typing import Any

import psycopg
from sqlalchemy import Engine, event


class AnswerLimitedConnection(psycopg.Connection[Any]):
    """Closes itself when an answer does not come within `answer_s`, so that nobody waits for it again."""

    answer_s = 15.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        if timeout is not None:  # the caller's own, such as for notifications
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.answer_s)
        except psycopg.OperationalError as exc:
            if (
                exc.sqlstate is not None or self.closed
            ):  # the server's error, or it closed the connection
                raise
            self.close()
            silent = f"the server did not answer within {self.answer_s:g} s"
            raise psycopg.OperationalError(silent) from exc


def limit_answers(engine: Engine, answer_s: float) -> None:
    """Has the engine's connections wait for at most `answer_s` seconds for an answer."""

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, _args: object, named: Any) -> Any:
        connection = AnswerLimitedConnection.connect(**named)
        connection.answer_s = answer_s
        return connection
