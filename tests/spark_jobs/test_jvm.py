"""Programs of columns ask Java for no class and no method twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

LOOK_UP = "r\n"
"""py4j's command that looks a class or a method up begins with it."""


def test_classes_and_methods_of_columns_are_looked_up_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    def columns() -> list[Column]:
        return [
            F.when(F.col("a") == F.lit(1), F.coalesce(F.col("b"), F.lit("x"))).otherwise("y"),
            F.transform(F.col("c"), lambda one: one + 1),
        ]

    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    commands: list[str] = []
    send = client.send_command

    def noted(command: str, *arguments: Any, **named: Any) -> Any:
        commands.append(command)
        return send(command, *arguments, **named)

    monkeypatch.setattr(client, "send_command", noted)
    columns()  # whichever methods no test before has used
    rows = spark.createDataFrame([(1, None, [1])], "a int, b string, c array<int>")
    commands.clear()
    made = columns()
    assert commands
    assert [one for one in commands if one.startswith(LOOK_UP)] == []
    assert [tuple(row) for row in rows.select(made).collect()] == [("x", [2])]
