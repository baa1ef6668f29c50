"""Records in, noisy sums out, every crossing debited: the trusted base.

==================  ===========================================================================================
events              what a release costs, as facts: Gaussian, Laplace, discrete, joint, sampled, repeated
accounting          events -> (epsilon, delta), exact privacy loss distributions, in both directions
calibration         (epsilon, delta) -> the least noise that meets it
plan                the public numbers of a run: parts, rates, steps, releases
journal, ledger     what was ever released from these people, on disk before it happens
mechanisms, laws    the noise, and what each kind of it needs and costs
sampling, units     secret-coin parts, Poisson batches, records or persons
rows, records       what may be asked of a row; the rows and their exact sums
moments             first and second moments: how a record's share of them is bounded and laid flat
minimiser           output perturbation
selection, best_of  the best of a secret number of runs: one debit, one release, and what it costs
veil                the only door: bounds, noise, plan and receipt meet here
==================  ===========================================================================================
"""
