"""Access tokens: what a provider wants, one per fleet, sealed where they are kept."""
