"""Values and ports shared by all rooms. No other room is imported here."""
