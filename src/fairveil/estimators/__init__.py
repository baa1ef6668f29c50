"""The scikit-learn front: one file per method.

=============  ==================================================================================
private        PrivateClassifier: private, not yet fair (DP-SGD, DPSGD-F, output perturbation)
tables         a user's table and schema -> encoded records and the public task
saving         a fitted rule <-> a folder of JSON and safetensors
=============  ==================================================================================
"""
