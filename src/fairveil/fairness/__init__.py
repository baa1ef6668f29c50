"""Histogram -> rates -> violations; counts -> rates, gaps and bounds with intervals.

===========  =======================================================================================
rates        groups, rates by name, bounds on rates; compiled: violations and their pull on every count of a histogram
constraints  parities and caps -> bounds; several together -> one compiled whole
rule_parser  a rule written out, `selection_rate[sex=f] >= 0.8 * selection_rate[sex=m]` -> a bound
evaluation   noisy counts -> accuracy, rates, gaps, ratios and bounds, each with its interval, and whether bounds hold
diagnostics  the course of every bound during training, and a check of the released rule
===========  =======================================================================================

A name means one thing: rates are `RATES` everywhere, groups are codes of a `Population`, and people of none of an
attribute's groups count where everyone is meant and nowhere else.
"""
