"""A module that a process of its own has little to do for."""


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
