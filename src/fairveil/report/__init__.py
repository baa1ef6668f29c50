"""Summary and frontier -> one self-contained HTML page each.

=========  =====================================================================================
numbers    a number or nothing -> the text a person reads, the exact value kept beside it
scales     values -> nice ticks and positions; long lines -> at most so many points
svg        escaped SVG elements, and one shape and colour for each series
charts     dots with whiskers, lines with bands, points with error bars; all pure functions
words      facts -> plain sentences, and what the numbers do not say
rendering  templates + context -> one HTML text that asks nothing of the network
course     the trace of a training -> charts and tables of its bounds
page       the summary of a training -> its report
frontier   many trainings -> accuracy against gap, and what all of them cost together
=========  =====================================================================================

Everything shown was released before: a page computes nothing from records and costs no privacy.
"""
