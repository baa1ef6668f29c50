"""The scikit-learn front: one file per method.

================  ===============================================================================
private           PrivateClassifier: private, not fair (DP-SGD, DPSGD-F, output perturbation)
rate_constrained  RateConstrainedClassifier: private, under bounds on rates (RaCO-DP)
tables            a user's table and schema -> encoded records and the public task
saving            a fitted rule <-> a folder of JSON and safetensors
drafting          a table -> a first schema, at a stated privacy cost
================  ===============================================================================
"""
