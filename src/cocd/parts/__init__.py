"""The parts of a step: schedule, probe, memory, update, and what they stand on."""
