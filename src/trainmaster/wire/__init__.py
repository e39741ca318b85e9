"""What agent, SDK and server say to each other: standard library only, Python 3.9 syntax, imported by all of them."""
