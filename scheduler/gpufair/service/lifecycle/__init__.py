"""How a service begins, stands by, takes a changed configuration into use, and ends."""
