"""Access tokens: the engine's view of them, one per fleet, sealed where they are kept."""
