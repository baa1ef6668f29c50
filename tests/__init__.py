"""Tests. A regular package, so that no package of that name among installed ones is taken for it."""
