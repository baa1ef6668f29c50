"""A plan and records in, a released fit out, whatever the method.

===========  ===================================================================================
recipe       what is public about a task, and what every recipe for it promises
run          one budget -> one plan; a plan carried out -> parameters and hold-out counts
tuning       several recipes -> the best one's model, tried and chosen privately
multipliers  the dual ascent of all constrained methods
thresholds   noisy counts of scores -> the curves that thresholds are chosen on
===========  ===================================================================================
"""
