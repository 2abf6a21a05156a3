"""Facts of the machine, device profiles, placement of stages and the memory plan."""
