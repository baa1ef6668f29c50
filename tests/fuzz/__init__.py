"""Hostile input by the thousand: seeded cases for the real command line, and what must hold of every one of them."""
