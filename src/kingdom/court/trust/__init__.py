"""Who may ask for what: ``config/trust.yaml``.

* :mod:`.config` is the file, :mod:`.people` says who caused an event and whose words are in it;
* :mod:`.judging` decides, for the king and the envoy alike; :mod:`.permit` is what is decided, as a task carries it;
* :mod:`.frozen` keeps the words of an event what they were when it happened.
"""
