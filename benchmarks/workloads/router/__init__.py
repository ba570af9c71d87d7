"""A router to experts."""
