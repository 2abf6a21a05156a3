"""Questions over passages of which some are asked for far more often than others, and programs that answer them."""
