"""The tabs of the dashboard, one per file: each shows what a verb or two say about what was chosen."""
