"""A small language model that is fine-tuned by forward passes alone: the plan `llm`."""
