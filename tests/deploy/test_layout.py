import dataclasses
from pathlib import Path

import pytest

from deploy.local import layout as layouts
from deploy.local.errors import StackError
from deploy.local.layout import Layout, from_environment

PORT_RANGE_OF_OUTGOING_CONNECTIONS = range(32_768, 61_000)


def test_no_two_servers_share_a_port(tmp_path: Path) -> None:
    ports = Layout(tmp_path, brokers=3).ports
    assert len(ports) == len(set(ports)) == 3 + 3 + 3


def test_stacks_a_thousand_apart_share_no_port(tmp_path: Path) -> None:
    one, other = Layout(tmp_path, 20_000, 3), Layout(tmp_path, 21_000, 3)
    assert not set(one.ports) & set(other.ports)


def test_default_ports_are_not_taken_by_outgoing_connections(tmp_path: Path) -> None:
    assert not set(Layout(tmp_path, brokers=3).ports) & set(PORT_RANGE_OF_OUTGOING_CONNECTIONS)


def test_all_addresses_are_on_loopback(tmp_path: Path) -> None:
    made = Layout(tmp_path, 20_000, 3)
    assert made.environment() == {
        "HONGYAN_KAFKA__BOOTSTRAP": "127.0.0.1:20092,127.0.0.1:20093,127.0.0.1:20094",
        "HONGYAN_DATABASE__URL": "postgresql+psycopg://hongyan:hongyan@127.0.0.1:20432/hongyan",
        "HONGYAN_REDIS__URL": "redis://127.0.0.1:20379/0",
    }


@pytest.mark.parametrize("brokers", [0, 2, 4])
def test_other_numbers_of_brokers_are_refused(tmp_path: Path, brokers: int) -> None:
    with pytest.raises(StackError, match="BROKERS must be 1 or 3"):
        Layout(tmp_path, brokers=brokers)


@pytest.mark.parametrize("base", [0, 1023, 65_001])
def test_ports_out_of_range_are_refused(tmp_path: Path, base: int) -> None:
    with pytest.raises(StackError, match="HONGYAN_STACK_PORT_BASE must lie between"):
        Layout(tmp_path, base)


def test_stack_lies_in_the_checkout_unless_told_otherwise() -> None:
    assert from_environment({}).root == layouts.REPOSITORY / ".stack"


def test_environment_wins_over_the_record(tmp_path: Path) -> None:
    here = {"HONGYAN_STACK_DIR": str(tmp_path)}
    layouts.write_record(Layout(tmp_path, 22_000, 3))
    recorded = from_environment(here)
    assert (recorded.port_base, recorded.brokers) == (22_000, 3)
    told = from_environment({**here, "HONGYAN_STACK_PORT_BASE": "23000", "BROKERS": "1"})
    assert (told.port_base, told.brokers) == (23_000, 1)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"port_base": "x"}'])
def test_a_broken_record_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)
    made = from_environment({"HONGYAN_STACK_DIR": str(tmp_path)})
    assert made == Layout(tmp_path)


def test_a_word_for_a_number_is_refused_by_name() -> None:
    with pytest.raises(StackError, match="BROKERS must be a whole number, not 'many'"):
        from_environment({"BROKERS": "many"})


def test_durability_is_on_unless_it_is_switched_off() -> None:
    assert from_environment({}).fsync
    assert from_environment({"HONGYAN_STACK_FSYNC": "on"}).fsync
    assert not from_environment({"HONGYAN_STACK_FSYNC": "off"}).fsync
    with pytest.raises(StackError, match="HONGYAN_STACK_FSYNC must be on or off, not '0'"):
        from_environment({"HONGYAN_STACK_FSYNC": "0"})


def test_layout_is_frozen(tmp_path: Path) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Layout(tmp_path).brokers = 3  # type: ignore[misc]
