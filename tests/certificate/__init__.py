"""The certificate of a commit: everything that was tried to break it, and that nothing broke (``make certificate``)."""
