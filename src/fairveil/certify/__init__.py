"""Held-out people, noisily counted, and the plan -> what is claimed of a released rule, and how surely.

=================  =====================================================================================
holdout            noisy counts + constraints -> claims, a verdict, the smallest tolerance, the rows it would take
noise_certificate  FairDP's statements over the training noise, never without the above
forecast           public sizes and noise -> the tolerance that will probably be certified
sentences          findings -> plain sentences
statement          what a run spent -> what is hidden, from whom, by how much, and what is not
explanation        public facts of a run -> what training would do and guarantee, in plain words
=================  =====================================================================================

Claims about fairness are post-processing of counts that were paid for when they were released.
"""
