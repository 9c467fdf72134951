"""The court and its workflows over HTTP: API, live events, dashboard. Entry point: :mod:`kingdom.web.app`."""
