"""Generals as packages: a folder with ``manifest.yaml``, ``prompt.md`` and, if wanted, ``instructions.md``.

An installed one lies in ``config/generals/<name>/``. :mod:`loading` reads them, :mod:`checking` finds what is wrong
with one, :mod:`installing` puts one in and takes it out.
"""
