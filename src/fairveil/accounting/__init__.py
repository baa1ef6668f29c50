"""Numbers in, (epsilon, delta) out; nothing here reads data.

===========  ====================================================================
events       what may be released, as frozen facts with a JSON form
pld          privacy loss distributions on a grid: built, sampled, composed
pricing      one use of each event -> its loss distributions and rough magnitude
composition  everything released together -> epsilon or delta
calibration  a budget -> the least noise that keeps it
===========  ====================================================================
"""
