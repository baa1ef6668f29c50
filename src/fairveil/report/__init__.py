"""What a person reads: sentences for the terminal, and one self-contained HTML page for a training or a frontier.

Everything shown was released before: nothing here computes from records or costs privacy. `text` and `privacy_text`
hold every sentence and import nothing heavy, so that any package may use them.
"""
