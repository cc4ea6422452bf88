"""Serving HTTP to the world: console, gateway and receipts.

serving            listen, serve until a stop, answer what is under way
connection_limits  what a stranger's connection may cost
request_times      each answer's route, status and time
"""
