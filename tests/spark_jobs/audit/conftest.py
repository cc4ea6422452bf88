import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests on PostgreSQL as needing the stack: their arguments' names do not say so."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("books") == "postgresql":
            item.fixturenames.append("services")  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.stack)
