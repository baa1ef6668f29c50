"""Numbers in, (epsilon, delta) out; nothing here reads data.

===========  ====================================================================
events       what may be released, as frozen facts with a JSON form
pld          privacy loss distributions on a grid: built, sampled, composed
pricing      events -> the loss distributions of the worst compositions of them
composition  everything released together -> epsilon or delta;
             a budget -> the least noise that keeps it
===========  ====================================================================
"""
