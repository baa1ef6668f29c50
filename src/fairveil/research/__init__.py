"""The papers' own forms and baselines, kept for comparison: tested, but not the recommended way to do anything."""
