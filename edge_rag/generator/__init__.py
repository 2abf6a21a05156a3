"""From a question and its passages to a cited answer: prompt, constraints, citations, streams."""
