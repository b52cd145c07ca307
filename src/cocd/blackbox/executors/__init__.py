"""Where points are evaluated."""
