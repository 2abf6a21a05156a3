"""What bounds the use of the machine by one caller: fair shares, and processes with limits."""
