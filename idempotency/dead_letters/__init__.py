"""The index of dead letters: where each one is, and what became of it. The letters are in Kafka alone.

rows      the words of both tables
index     writes letters as they come, with the place up to which the topic was read
browsing  pages and single letters, and what a person decides about them
"""
