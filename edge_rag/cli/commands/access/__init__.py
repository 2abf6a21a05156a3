"""Commands for certificates, tokens, pairing and discovery."""
