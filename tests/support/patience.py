"""How long a test waits for what must come. Whatever comes ends the wait, so only what never comes takes so long."""

PATIENCE_S = 600.0
"""A machine many times slower, and busy beside, has still come this far."""
