"""Runs a notebook unattended, beside its kernel: checkpoints after each cell, and goes on there after a preemption.

A cell is finished when its checkpoint is durable. Finished cells keep their outputs and never run again; the cell that
was cut short runs again from the state before it. The output notebook is whole at any moment.
"""
