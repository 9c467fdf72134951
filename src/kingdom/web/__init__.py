"""The court and the workflows over HTTP: an API, live events, and a dashboard. :mod:`kingdom.web.app` begins it."""
