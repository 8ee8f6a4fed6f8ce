"""What is done with a journal besides writing it: others read it, old entries are put away, it is checked and copied."""
