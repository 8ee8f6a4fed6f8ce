"""How kinds of objects are saved that pickle cannot save, or not as what they are. One module for each library.

Nothing heavy is imported: a codec meets its library when an object of it is met, and so in ``sys.modules``.

What codecs return names functions of this package, which a later version must still have: checkpoints outlive versions.
"""
