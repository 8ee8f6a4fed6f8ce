"""The kernel of gpufair's sessions: ipykernel, and three control messages for checkpoint, restore and notice.

``python -m jupyter_gpufair.kernel -f CONNECTION_FILE`` starts it. It runs in the user's environment, so it needs
ipykernel, cloudpickle and fsspec only, and whatever it does not need at the start is imported on first use.
"""
