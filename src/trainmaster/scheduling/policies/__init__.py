"""One file for each family of policies. `policy` is their type, and `known` lists them."""
