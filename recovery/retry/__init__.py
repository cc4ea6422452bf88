"""Sending again what is due."""
