"""`hongyan bench`: what it prints where, and how it exits; the measuring is replaced."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from typing import Any
from unittest.mock import create_autospec

import pytest
import structlog

import deploy.local.stack
from benchmarks import channels
from benchmarks.channels import RATIOS, VARIANTS
from hongyan import terminal
from hongyan.cli import main
from hongyan.commands.bench import app as commands


class Standing:
    """A stack that is up already."""

    bootstrap = "127.0.0.1:1"
    database_url = "postgresql://127.0.0.1:1/x"
    redis_url = "redis://127.0.0.1:1/0"
    names: tuple[str, ...] = ()

    def up(self) -> dict[str, str]:
        return {}


@pytest.fixture(autouse=True)
def _no_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(deploy.local.stack, "shared_stack", lambda _say: Standing())
    terminal.out.cache_clear()
    terminal.err.cache_clear()
    on_terminate = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, on_terminate)
    structlog.reset_defaults()
    terminal.out.cache_clear()
    terminal.err.cache_clear()


def bench(
    monkeypatch: pytest.MonkeyPatch, per_second: dict[str, float], *flags: str
) -> int | str | None:
    """The exit code of `hongyan bench channels`, where runs give these figures."""

    def run(variant: Any, *_: Any) -> dict[str, float]:
        structlog.get_logger("bench").warning("a_client_had_its_say")
        return {"per_second": per_second[variant.name], "cpu_us_per_message": 1, "rss_mib": 1}

    monkeypatch.setattr(channels, "_run", run)
    monkeypatch.setattr(channels, "_preloaded", lambda _: nullcontext("prefix"))
    monkeypatch.setattr(channels, "provider_at", lambda *_, **__: nullcontext(Provider()))
    monkeypatch.setattr("sys.argv", ["hongyan", "bench", "channels", "--rounds", "3", *flags])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


class Provider:
    url = "http://127.0.0.1:1"


FAST = {"tencent_200_a_call": 5_000.0, "tencent_1_a_call": 80.0, "twilio_1_a_call": 90.0}


def test_json_is_all_there_is_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not bench(monkeypatch, FAST, "--json")
    said = capfd.readouterr()
    report = json.loads(said.out)
    assert "a_client_had_its_say" in said.err
    assert set(report["medians"]) == {variant.name for variant in VARIANTS}
    assert [ratio["median"] for ratio in report["ratios"]] == [62.5, 55.6]
    assert [ratio["ratio"] for ratio in report["ratios"]] == [title for title, *_ in RATIOS]


def test_a_ratio_that_is_missed_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert bench(monkeypatch, {**FAST, "tencent_1_a_call": 101.0}) == 1
    assert "missed" in capfd.readouterr().out


@pytest.mark.parametrize("name", [str(one.name) for one in commands.registered_commands])
def test_each_benchmark_is_called_as_it_is_written(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Their modules are imported by name, so that the type checker does not see these calls."""
    module = import_module(f"benchmarks.{name}")
    held = {"ratio": "a ÷ b", "median": 1.0, "wanted": 0.5, "holds": True}
    report = {"medians": {"a": {"per_second": 1}}, "ratios": [held]}
    measured = create_autospec(module.measure, return_value=report)  # it has the same parameters
    monkeypatch.setattr(module, "measure", measured)
    if hasattr(module, "endure"):
        monkeypatch.setattr(module, "endure", create_autospec(module.endure, return_value={}))
    tree = ["."] if name == "turns" else []
    monkeypatch.setattr("sys.argv", ["hongyan", "bench", name, *tree, "--json"])
    with pytest.raises(SystemExit) as left:
        main()
    said = capfd.readouterr()
    assert not left.value.code, said.err
    assert measured.call_count == 1
    assert json.loads(said.out)["ratios"] == [held]
