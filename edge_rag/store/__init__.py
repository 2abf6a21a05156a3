"""The model store: models that an operator added, checked before they are taken in and each in a closed folder."""
