"""How the next points are chosen."""
