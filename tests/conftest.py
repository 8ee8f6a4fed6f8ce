"""Plugins that all suites share. (Pytest takes them from the topmost conftest only.)"""

# Runs `async def` tests, and brings real Jupyter servers as fixtures.
pytest_plugins = ["pytest_jupyter.jupyter_server"]
