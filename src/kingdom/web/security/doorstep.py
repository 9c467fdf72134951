"""What people see who are not logged in."""

from __future__ import annotations

from html import escape
from typing import Final

from starlette.responses import HTMLResponse

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kingdom: log in</title>
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.5 }}
body {{ max-width: 36rem; margin: 15vh auto; padding: 0 1rem }}
code {{ padding: .15rem .4rem; border: 1px solid; border-radius: .3rem }}
</style>
</head>
<body>
<h1>Kingdom</h1>
<p>{what}</p>
<p>On the machine where it runs, in the folder of your court or your workflows:</p>
<p><code>kingdom web --link</code></p>
<p>prints a link. Open it in this browser, once. If you have just done so: <a href="/">go on to the dashboard</a>.</p>
</body>
</html>
"""


def doorstep(status: int, what: str) -> HTMLResponse:
    """A small page that says how to get in."""
    return HTMLResponse(_PAGE.format(what=escape(what)), status)
