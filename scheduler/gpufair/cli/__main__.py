"""`python -m gpufair.cli`."""

from __future__ import annotations

from gpufair.cli import main

main()
