"""Searches for deliveries by a line of query language (docs/search.md).

fields        the fields of the language, and the values that each may have
language      a line → terms, or an error with its place
wording       terms, errors → sentences with keys for translation; completions
statements    terms → SQL
store         pages of rows, newest first, from the ledger and its archived days
views         searches that people keep under a name
"""
