"""From uploaded bytes to plain text with structure.

``process`` is what the rest of the room calls; it hands the bytes to ``worker``, a process of its own, which finds the
format (``formats``) and lets ``reader`` run the module that is named after it. All of them build their result with
``builder``, so that text is normalized in one place. What is a ZIP file of XML is opened by ``container`` and read by
``xml``, which trust nothing that it says.
"""
