"""How databases of older versions become those of this one; run by ``gpufair.service.storage.schema``."""
