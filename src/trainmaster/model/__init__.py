"""Domain types: frozen dataclasses, enums and ids. No I/O, no clock, no randomness."""
