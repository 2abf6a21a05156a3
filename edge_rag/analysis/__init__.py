"""Text analysis without any language given: index terms by script, and numbers in one form."""
