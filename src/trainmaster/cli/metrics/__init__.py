"""`tm metrics`: the table of all points, and what is read from a program's output or files."""
