"""Which of these should I run, by how much, and do they give the same answers?

candidates ─▶ sizes ─▶ (export) ─▶ lives ─▶ parity ─▶ rows ─▶ fits ─▶ advice ─▶ Comparison
"""
