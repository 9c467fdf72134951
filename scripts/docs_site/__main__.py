"""Build the documentation as a static site: ``python -m scripts.docs_site``, or ``make docs``.

The pages of docs, with search, light and dark, in English and in Korean where both exist; the Python interface from its
docstrings; the OpenAPI page. Nothing is loaded from another host, so the site can be read from a folder. A broken link
or anchor fails the build.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath

from scripts.docs_site.links import problems
from scripts.docs_site.nav import navigation
from scripts.docs_site.reference import write_modules, write_openapi
from scripts.docs_site.stage import Broken, Stage

ROOT = Path(__file__).resolve().parent.parent.parent
REQUIREMENTS = ROOT / "requirements" / "docs.txt"
SETTINGS = Path(__file__).with_name("mkdocs.yml")
_USELESS = ("*.map", "sitemap.xml.gz", "404.html")  # source maps, and what needs an address of the site


def main() -> int:
    """Build the site; 0 when nothing is wrong with it."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.docs_site", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("--out", type=Path, default=ROOT / "artifacts" / "docs", help="default: artifacts/docs")
    parser.add_argument("--tools", type=Path, default=ROOT / ".tools" / "docs", help="the environment of MkDocs")
    options = parser.parse_args()
    try:
        build(options.out.resolve(), tools(options.tools.resolve()))
    except (Broken, subprocess.CalledProcessError) as error:
        print(getattr(error, "stdout", None) or error, file=sys.stderr)
        return 1
    if found := problems(options.out.resolve()):
        print("\n".join(["the site is broken:", *found]), file=sys.stderr)
        return 1
    print(f"{options.out / 'index.html'}")
    return 0


def tools(folder: Path) -> Path:
    """Return the programs of an environment with MkDocs; it is made when it is missing or out of date."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp = folder / ".ready"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once: the second finds the first one's work
        if not stamp.exists() or stamp.read_text() != wanted:
            print(f"installing MkDocs into {folder} (once)", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(folder))
            _run(str(ROOT / "scripts" / "install"), str(folder / "bin" / "python"), str(REQUIREMENTS))
            stamp.write_text(wanted)
    return folder / "bin"


def build(out: Path, programs: Path) -> None:
    """Build the site into a folder, in the place of what was there."""
    with tempfile.TemporaryDirectory(prefix="kingdom-docs-") as name:
        work = Path(name)
        pages, site = work / "pages", work / "site"
        settings = _settings(pages)
        (work / "mkdocs.yml").write_text(settings)
        _run(
            str(programs / "python"), "-m", "mkdocs", "build", "--strict",
            "--config-file", str(work / "mkdocs.yml"), "--site-dir", str(site),
            PYTHONPATH=str(ROOT / "src"), NO_MKDOCS_2_WARNING="1", NO_COLOR="1",
        )  # fmt: skip
        for pattern in _USELESS:
            for path in site.rglob(pattern):
                path.unlink()
        shutil.copy(site / "sitemap.xml", site / "ko")  # the choice of a language asks for it
        for path in (site / "ko").rglob("*.html"):
            path.write_text(path.read_text().replace('<html lang="en"', '<html lang="ko"', 1))
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(site, out)


def _settings(pages: Path) -> str:
    """Write the sources of all pages; return the settings that MkDocs needs to build them."""
    import yaml

    from kingdom.web.app import openapi_document

    Stage(ROOT, pages, _files()).fill()
    write_modules(pages)
    write_openapi(pages, asyncio.run(openapi_document()))
    korean = sorted(PurePosixPath(path.relative_to(pages)) for path in (pages / "ko").rglob("*.md"))
    nav = navigation((ROOT / "docs" / "README.md").read_text(), korean)
    filled = yaml.safe_dump({"nav": nav, "docs_dir": str(pages)}, allow_unicode=True, sort_keys=False)
    return SETTINGS.read_text().replace("scripts/docs_site/", f"{SETTINGS.parent}/") + filled


def _files() -> list[str]:
    """Return every file of the repository; outside of one, every file."""
    if (ROOT / ".git").exists():
        listed = _run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        return sorted(name for name in listed if name and (ROOT / name).is_file())
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if "__pycache__" not in path.parts)


def _run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
