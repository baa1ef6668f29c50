"""fairveil."""
