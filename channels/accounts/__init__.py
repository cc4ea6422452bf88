"""What an account may be used for: whom it reaches, its lane, its time limits."""
