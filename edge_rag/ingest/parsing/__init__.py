"""From uploaded bytes to plain text with structure.

``sandbox/process`` sends the bytes to ``sandbox/worker``, a confined process. There ``parser`` finds the format
(``formats``) and runs its parser. Every parser declares a ``Format`` and builds its result with ``document_builder``.
"""
