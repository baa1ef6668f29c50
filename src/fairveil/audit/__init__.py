"""Audits: lower bounds on epsilon from games on real veils and whole trainings, to be set beside the claim.

==========  ==================================================================
bounds      scores of two worlds, or of many canaries -> a lower bound
transcript  what passes the veil -> how likely it is with and without a record
games       a plan, a recipe or any training function -> scores -> an `Audit`
==========  ==================================================================
"""
