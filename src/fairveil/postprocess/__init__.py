"""Veil of scores -> decision rule.

===============  ======================================================================================
scene            what a rule is fitted to: a released model, the bounds, the people; the last count
curves           noisy (cell x bin of score) counts -> the best thresholds, by a linear program
score_histogram  ScoreHistogram: one noisy histogram of scores, settled by a few counts (two classes, aware)
dual_steps       DualSteps: large-batch steps on the multipliers (any classes, aware or not)
noisy_descent    NoisyDescent: DP2DP's own descent, put right (two groups, demographic parity)
flips            RateFlips: random flips to the midpoint (decoupled parity, two groups and classes)
recipe           base model + fitting of the rule -> one recipe with one plan
promises         what can be said of the gap beforehand, and the papers' bounds
exact            the exact solution on given scores: not private, for comparison
===============  ======================================================================================
"""
