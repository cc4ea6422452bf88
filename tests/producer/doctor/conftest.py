from tests.hongyan_client.outbox.conftest import place, pytest_collection_modifyitems

__all__ = ["place", "pytest_collection_modifyitems"]
