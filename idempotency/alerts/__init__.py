"""Alerts as the fleet keeps them: windows, the book, their statements."""
