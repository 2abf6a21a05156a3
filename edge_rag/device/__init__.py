"""What the box is: its facts, the profile for it, and what that plans."""
