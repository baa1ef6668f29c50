"""Records that are kept elsewhere than in the memory of one process."""
