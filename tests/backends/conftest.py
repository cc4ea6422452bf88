import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs on Redis needs the stack, which it could not know from its arguments' names."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("world") == "redis" and "backends" in item.nodeid:
            item.fixturenames.append("services")  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.stack)
