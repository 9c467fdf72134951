"""Events as files: one JSON document each, and the directory it lies in is its state.

::

    queue/                        the directory of the URL
      .kingdom-bus.json           the version of this layout
      <stream>/
        pending/<event id>.json   also processing/, done/ and dead/; a stream may name them otherwise
        invalid/<name>            what could not be understood, with <name>.reason beside it
        .stream.json              the stream's options
        .ledger                   attempts, leases, errors: one JSON line for each operation
        .lock                     one process at a time changes something
        .tmp-…                    documents being written

A state change is one rename. What a directory cannot say (how often an event was tried, until when it is held, why it
failed) stands in the ledger, which every process reads on from where it was, so that nobody ever searches the
directories to find the next event. :mod:`~.stream` tells how the two are kept together when a process dies between
them; when they disagree otherwise, somebody moved files by hand or the power failed, and the directories are right
(:mod:`~.scan`).
"""

from kingdom.bus.transports.files.transport import FilesTransport, open  # noqa: A004

__all__ = ["FilesTransport", "open"]
