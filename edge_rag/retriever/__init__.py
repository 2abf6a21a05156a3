"""From documents to passages: parsing, chunking, storing, searching, fusing."""
