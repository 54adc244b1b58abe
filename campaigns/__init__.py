"""Searches for what breaks it, larger than tests can be: docs/reliability.md says what came of them."""
