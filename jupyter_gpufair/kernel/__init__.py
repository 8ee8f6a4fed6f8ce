"""The kernel of gpufair's sessions: ipykernel, and control messages for checkpoint, restore, notice and pre-flight.

``python -m jupyter_gpufair.kernel -f CONNECTION_FILE`` starts it. It runs in the user's environment, so it needs
ipykernel, cloudpickle and fsspec only, and whatever it does not need at the start is imported on first use.
"""
