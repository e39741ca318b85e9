"""The protocol between agent, SDK and server: standard library only, Python 3.9 syntax, imported by all of them."""
