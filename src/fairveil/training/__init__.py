"""Veil + model + constraint + plan -> parameters.

================  ======================================================================================
task              what is public about a task, and what a recipe for it promises
descent           Descent: private gradient descent (DP-SGD), with group-adaptive clipping (DPSGD-F)
minimising        OutputPerturbation: the noisy minimiser of a strongly convex linear model
rate_constrained  RateConstrained: descent and ascent under bounds on rates (RaCO-DP)
ascent            noisy histograms -> multipliers and the pull of the bounds
look              one last count at the averaged parameters -> threshold, and what holds
objectives        row functions: what is minimised, what is counted
planning          recipe + budget -> one plan, calibrated jointly
tuning            Tuning: several recipes -> the best one's model, tried and chosen privately
training          plan + records + ledger -> a released model and its noisy outcomes on the hold-out
================  ======================================================================================
"""
