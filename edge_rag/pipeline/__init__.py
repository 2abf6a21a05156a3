"""Stages, bounded queues, deadlines and cancellation, and the ports that the rooms below implement."""
