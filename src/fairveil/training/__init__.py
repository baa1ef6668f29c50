"""Veil + model + constraint + plan -> parameters.

================  ======================================================================================
task              what is public about a task, and what a recipe for it promises
descent           Descent: private gradient descent (DP-SGD), with group-adaptive clipping (DPSGD-F)
minimising        OutputPerturbation: the noisy minimiser of a strongly convex linear model
rate_constrained  RateConstrained: descent and ascent under bounds on rates (RaCO-DP)
functional        Functional: one release of moments, the whole frontier from it (FM, FairFM)
expansion         the logistic loss as a quadratic of noisy moments, and where it is least
score_path        the line between the free and the equal model, and which point of it meets a tolerance
sheet             what it released, and the model for any limits that follows from it
groupwise         Groupwise: groups side by side, a bounded last layer, Adam then plain descent (FairDP)
group_rows        its row functions; last_step, stopping: what it releases at the end and on the way
smoothing         Smoothed: any of these, and decisions drawn around what it released (FairSmooth)
ascent            noisy histograms -> multipliers and the pull of the bounds
look              one last count at the averaged parameters -> threshold, and what holds
objectives        row functions: what is minimised, what is counted
planning          recipe + budget -> one plan, calibrated jointly
tuning            Tuning: several recipes -> the best one's model, tried and chosen privately
training          plan + records + ledger -> a released model and its noisy outcomes on the hold-out
================  ======================================================================================
"""
