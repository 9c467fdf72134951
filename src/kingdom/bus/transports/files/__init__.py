"""Events as files: one JSON document for each event, in the directory of its state.

::

    queue/                        the directory of the URL
      .kingdom-bus.json           the version of this layout
      <stream>/
        pending/<event id>.json   also processing/, done/ and dead/; a stream may use other names
        invalid/<name>            files that could not be read, each with <name>.reason
        .stream.json              the stream's options
        .ledger                   attempts, leases, errors: one JSON line for each operation
        .lock                     one process at a time changes something
        .tmp-…                    documents being written

A state change is one rename. What a directory cannot hold (attempts, leases, errors) is in the ledger. Every process
reads the ledger from where it stopped, so no process searches the directories for the next event. :mod:`~.stream`
describes how the two stay consistent when a process dies between them. If they disagree otherwise, files were moved by
hand or the power failed, and the directories are right (:mod:`~.directories`).
"""

from kingdom.bus.transports.files.transport import FilesTransport, open  # noqa: A004

__all__ = ["FilesTransport", "open"]
