"""Which sequences run in the next step and with how many tokens. Pure: no clock, no I/O."""
