"""Roll-ups: counts, durations, cost and queue ages by minute, quarter of an hour, hour and day.

``store`` is the file, ``reading`` adds the journal and the ledger to it, ``queries`` reads it. ``sketch`` is the
histogram of durations.
"""
