"""The parts of a step: probes, memory, update, and the helpers that they share."""
