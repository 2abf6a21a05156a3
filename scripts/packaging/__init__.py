"""What a release consists of; run by scripts/release. Standard library only, so that any Python 3.11 runs it."""
