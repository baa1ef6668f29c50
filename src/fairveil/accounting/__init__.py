"""Numbers in, (epsilon, delta) out: events, loss distributions, composition, calibration. Never sees data."""
