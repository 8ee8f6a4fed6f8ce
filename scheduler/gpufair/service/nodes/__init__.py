"""The service's end of its nodes: which command goes where, and what their agents report."""
