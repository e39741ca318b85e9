"""The Python client of the REST interface, and what a submit gathers on the machine that it comes from.

It validates nothing that the server validates again with another answer.
"""
