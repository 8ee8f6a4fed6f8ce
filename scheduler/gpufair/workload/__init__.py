"""What a notebook's author may call: ``gpufair.on_preempt``, ``gpufair.safe_point``, ``gpufair.resumable`` and so on.

Standard library only, and nothing here needs the scheduler: outside a session of gpufair ``safe_point`` is False,
``resumable`` is the loop that it wraps and ``on_preempt`` only remembers. So a program runs unchanged on a laptop.
"""
