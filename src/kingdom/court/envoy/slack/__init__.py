"""Slack as a place where people are.

* :mod:`.api` calls the Web API, :mod:`.socket` receives over Socket Mode;
* :mod:`.inbox` keeps what was received, :mod:`.understanding` reads it, :mod:`.ears` makes events of it;
* :mod:`.voice` says messages, each once: :mod:`.posts` holds what it meant to post, and what became of that;
* :mod:`.threads` has the files that say which thread belongs to which task, and which questions are open.
"""
