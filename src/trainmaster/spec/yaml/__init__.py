"""YAML 1.2 with the line and column of everything, and the place of each fault.

What a field means is not here.
"""
