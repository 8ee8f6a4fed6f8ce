"""`python -m gpufair.cli`."""

from __future__ import annotations

from gpufair.cli import main

if __name__ == "__main__":  # the processes of `simulate --jobs` import it as something else
    main()
