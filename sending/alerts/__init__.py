"""Alerts: windows, rules, the notifier and its webhook."""
