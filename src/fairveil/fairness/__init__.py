"""Histogram -> rates -> violations; counts -> rates, gaps and bounds with intervals.

===========  =======================================================================================
cells        attributes, groups and labels -> group codes, and the smallest partition that rates need
rates        a rate's name, its people and class -> two sums of (group x label x decision) counts
histogram    bounds on rates -> violations and their pull on every count of a (cell x class) histogram
constraints  what a user asks for (parities, caps) -> bounds; several together -> one compiled whole
expressions  a rule written out, `selection_rate[sex=f] >= 0.8 * selection_rate[sex=m]` -> a bound
estimates    bounds + noisy counts -> left sides with intervals, and whether they hold
metrics      noisy counts -> accuracy, rates, gaps and ratios, each with its interval
smooth       sums of probabilities in the place of counts -> rates and gaps of smooth decisions
final_check  noisy counts at the released parameters -> by how much each bound is broken
trace        noisy histograms of a training -> the course of every bound, with the width of its noise
===========  =======================================================================================

A name means one thing: rates are `RATES` of rates.py everywhere, groups are codes of a `Population`, and people of none
of an attribute's groups count where everyone is meant and nowhere else.
"""
