"""Processes of the fleet: leases, duties, health, status, keys that wait."""
