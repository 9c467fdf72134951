"""Packages of generals: a folder with ``manifest.yaml``, ``prompt.md`` and, optionally, ``instructions.md``.

Installed packages are in ``config/generals/<name>/``. :mod:`manifest` is the model of the manifest, :mod:`installed`
reads installed packages, :mod:`installer` checks, creates, installs and removes them.
"""
