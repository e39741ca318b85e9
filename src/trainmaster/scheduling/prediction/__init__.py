"""How long jobs run, learned from those that are over."""
