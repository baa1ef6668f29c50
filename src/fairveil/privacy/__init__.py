"""Records in, noisy sums out, every release debited first: the veil, the plan and the ledger.

docs/assurance/trusted-base.md says which of these files see records, which keep the ledger, and how each is trusted.
"""
