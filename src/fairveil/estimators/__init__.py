"""The scikit-learn front: one file per method, and the front door.

=================  ===============================================================================
fair               FairClassifier: the front door; one budget in, a certified rule out
choosing           a method by name or by public facts -> the estimator behind the door
telling, keeping   what a report shows of a run; what a model folder says of the front door
private            PrivateClassifier: private, not fair (DP-SGD, DPSGD-F, output perturbation)
rate_constrained   RateConstrainedClassifier: private, under bounds on rates (RaCO-DP)
functional         FunctionalClassifier: one release, every tolerance (FM, FairFM)
groupwise          GroupwiseClassifier: groups side by side, noise certificates (FairDP)
smoothed           SmoothedClassifier: decisions drawn around a private model (FairSmooth and its kin)
parity             ParityPostprocessor: a fair rule on top of scores (DP2DP)
randomized_parity  RandomizedParityPostprocessor: random flips (decoupled parity)
counting           a released rule and other people -> noisy outcomes, for a certificate
deciding           rows and a rule -> decisions and their law; given, wrapping: classifiers fitted elsewhere
tables             a user's table and schema -> encoded records and the public task
saving             a fitted rule <-> a folder of JSON and safetensors
drafting           a table -> a first schema, at a stated privacy cost
=================  ===============================================================================
"""
