"""What an answer means: error tables, lists as proof, outcomes, Retry-After, JSON of strangers."""
