"""The parts of `AutoCoCD`."""
