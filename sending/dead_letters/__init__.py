"""Dead letters: the worker writes them, recovery indexes them, people replay them.

headers   names of our headers
stub      letters for records that the topic takes in no other form
forms     the whole record, its beginning or a stub
reader    records of the topic → letters, masked for display
batches   bounded batches of letters
replay    letters → the topic of their origin, each once
"""
