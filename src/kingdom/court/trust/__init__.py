"""Who may ask for what: ``config/trust.yaml``.

:mod:`.config` is the model of the file, :mod:`.policy` decides by it for the king and the envoy, and :mod:`.text_hash`
protects the text of an event against later changes.
"""
