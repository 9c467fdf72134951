"""The conformance suite: what every transport promises, as tests that somebody else's transport can run.

::

    import pytest
    from kingdom.bus.testing import ConformanceSuite, Harness, ManualClock

    class TestMyTransport(ConformanceSuite):
        @pytest.fixture
        async def harness(self, tmp_path):
            async with Harness(f"mine://{tmp_path}", clock=ManualClock()) as harness:
                yield harness

It needs pytest and pytest-asyncio (in strict mode, decorate the fixture with ``pytest_asyncio.fixture``). Every test
uses streams and ids of its own, so a store that is slow to make may be shared by all of them.
"""

import pytest

# Before the behaviours are imported: their assertions then explain themselves as those of any test module do.
pytest.register_assert_rewrite("kingdom.bus.testing.behaviours")

from kingdom.bus.testing.harness import Harness, ManualClock  # noqa: E402
from kingdom.bus.testing.suite import ConformanceSuite  # noqa: E402

__all__ = ["ConformanceSuite", "Harness", "ManualClock"]
