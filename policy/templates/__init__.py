"""Templates: declarations, variables, forms of providers, the sandbox that renders them."""
