"""Citations: markers, attribution of sentences to passages, claims."""
