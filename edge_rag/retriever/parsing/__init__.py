"""From uploaded bytes to plain text with structure.

``process`` is what the rest of the room calls; it hands the bytes to ``worker``, a process of its own, which finds the
format (``formats``) and runs one of ``markdown``, ``plain``, ``html`` and ``pdf``. Those four build their result with
``builder``, so that text is normalized in one place.
"""
