"""`/dead`: dead letters. The list comes from the index; one letter and replays need Kafka.

listing    the list with its filter
letter     one letter: read, reveal, replay, discard
many       all letters of a filter: replay or discard, after a look and a typed count
lanes      letters that a person may see, or act on
kafka      reads letters from their places, and replays them
rendering  any bytes as text that is safe to show
"""
