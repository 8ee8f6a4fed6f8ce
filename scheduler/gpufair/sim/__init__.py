"""The policy time machine: submissions played through the very core that runs live, and through policies to compare with."""
