"""Problems of the contest, one class a file."""
