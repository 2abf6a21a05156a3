"""From uploaded bytes to plain text with structure.

``sandbox/process`` hands the bytes to ``sandbox/worker``, a confined process, which finds the format (``formats``) and
lets ``parser`` run the parser of that format. All parsers build their result with ``document_builder``.
"""
