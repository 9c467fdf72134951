"""The conformance suite: the promises of every transport, as tests that any transport can run.

::

    import pytest
    from kingdom.bus.testing import ConformanceSuite, Harness, ManualClock

    class TestMyTransport(ConformanceSuite):
        @pytest.fixture
        async def harness(self, tmp_path):
            async with Harness(f"mine://{tmp_path}", clock=ManualClock()) as harness:
                yield harness

It needs pytest and pytest-asyncio (in strict mode, decorate the fixture with ``pytest_asyncio.fixture``). Every test
uses streams and ids of its own, so all tests may share a store that is slow to create.
"""

import pytest

# Before the behaviours are imported, so that their assertions show details as in any test module.
pytest.register_assert_rewrite("kingdom.bus.testing.behaviours")

from kingdom.bus.testing.harness import Harness, ManualClock  # noqa: E402
from kingdom.bus.testing.suite import ConformanceSuite  # noqa: E402

__all__ = ["ConformanceSuite", "Harness", "ManualClock"]
