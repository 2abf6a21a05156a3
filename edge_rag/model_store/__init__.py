"""Models that an operator added: checked before they are accepted, each in a closed folder."""
