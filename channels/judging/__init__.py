"""The meaning of an answer: error tables, lists as proof, outcomes, Retry-After, foreign JSON."""
