"""The scheduler as a service: one task that owns the core's state, a journal, an HTTP API and the agents of its nodes.

Start one with `gpufair.service.serve.run`; talk to one with `gpufair.client`.
"""
