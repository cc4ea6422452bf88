"""Indexes dead letters as they come.

entries   letters → rows of the index
indexer   the thread: one recovery of the fleet follows the topic
"""
