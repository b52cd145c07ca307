"""What `AutoCoCD` is made of."""
