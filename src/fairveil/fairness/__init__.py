"""Histogram -> rates -> violations; counts -> rates, gaps and bounds with intervals.

===========  =======================================================================================
groups       attributes, groups, labels and rates by name; the smallest partition that rates need
histogram    bounds on rates -> violations and their pull on every count of a (cell x class) histogram
constraints  parities and caps -> bounds; several together -> one compiled whole
rule_parser  a rule written out, `selection_rate[sex=f] >= 0.8 * selection_rate[sex=m]` -> a bound
intervals    bounds + noisy counts -> left sides with intervals, and whether they hold
evaluation   noisy counts -> accuracy, rates, gaps and ratios, each with its interval
diagnostics  the course of every bound during training, and a check of the released rule
===========  =======================================================================================

A name means one thing: rates are `RATES` everywhere, groups are codes of a `Population`, and people of none of an
attribute's groups count where everyone is meant and nowhere else.
"""
