"""Deliveries: searches, one delivery's page, actions on it, and those in doubt.

search_line      a line of the query language as a person typed it: its words, its address, its rights
search           `/search`: the box, its completion, the results
export           a search's results as CSV
saved_views      searches that people keep
delivery_facts   what the databases know of one delivery
request_preview  its request as the adapter makes it, masked
delivery         `/deliveries/KEY`: the page, and what is shown by request
rebuilt          `/deliveries/KEY/rebuilt`: its path as Spark rebuilt it
actions          what a person may do with one delivery
doubt            `/doubt`: deliveries in doubt, lane by lane
"""
