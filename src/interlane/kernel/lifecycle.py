"""The table of a job's life, which the scheduler shares with the records of live jobs."""

from interlane.model.lifecycle import HOLDING, NEXT, JobState, advance

__all__ = ["HOLDING", "NEXT", "JobState", "advance"]
