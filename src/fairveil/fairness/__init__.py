"""Counts -> rates -> gaps with intervals.

==========  ========================================================================================
metrics     noisy (group x label x decision) counts -> accuracy, rates and gaps, each with its interval
==========  ========================================================================================
"""
