"""``python -m kingdom`` is the ``kingdom`` command."""

from kingdom.cli import main

if __name__ == "__main__":
    main()
