"""Certificates from held-out people: which bounds hold for new people, at a stated confidence."""
