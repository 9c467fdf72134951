"""The benchmark: every figure beside the bare loop and the peers, measured in the same run (``make bench``)."""
