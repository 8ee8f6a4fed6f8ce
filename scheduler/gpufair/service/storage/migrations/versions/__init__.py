"""One file for each version of the schema: ``rN_what.py`` makes version N from N - 1."""
