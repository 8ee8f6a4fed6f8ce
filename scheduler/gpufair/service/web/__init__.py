"""What every route stands on: the gate before it, rights, bodies, the contract, and what they all need."""
