"""Published forms of the vocabulary: parts, envelope, outcome, asyncapi. `hongyan schema` exports them."""
