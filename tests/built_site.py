"""The built site, read by a program and opened in a real browser, on a wide and on a narrow screen.

Run by `nox -s browser`, not with the other tests: it needs Chromium, and a site in `$SITE`.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import optimisers

SITE = Path(os.environ["SITE"])
FILES = sorted(file for file in SITE.rglob("*.html") if file.name != "404.html")
SCREENS = {"desktop": (1280, 900), "phone": (390, 844)}
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars",
]  # fmt: skip
SHOWN_WHOLE = ("errors", "race", "rules", "testing")
UNREAD = ("code", "pre", "script", "style")
# What a page is asked once it is there: formulas, images, width, and where its parts came from.
LOOK = """
const done = arguments[arguments.length - 1];
for (const image of document.images) image.loading = "eager";
const loaded = Array.from(document.images, image => image.decode().catch(() => null));
Promise.all(loaded).then(() => done({
  title: document.title,
  text: document.querySelector("article").innerText.length,
  formulas: document.querySelectorAll(".arithmatex").length,
  rendered: document.querySelectorAll(".arithmatex > .katex, .arithmatex > .katex-display").length,
  images: Array.from(document.images).filter(i => !i.naturalWidth).map(i => i.src),
  small: Array.from(document.images).filter(i => i.clientWidth && i.clientWidth < 600)
    .map(i => i.src),
  styled: Array.from(document.styleSheets).filter(s => s.href && s.href.endsWith("site.css"))
    .flatMap(s => Array.from(s.cssRules)).flatMap(r => r.cssRules.length ? [...r.cssRules] : [r])
    .map(r => [r.selectorText, document.querySelector(r.selectorText) != null]),
  wide: document.documentElement.scrollWidth - window.innerWidth,
  foreign: performance.getEntriesByType("resource").map(e => e.name)
    .filter(name => !name.startsWith(location.origin) && !name.startsWith("data:")),
}));
"""


class Page(HTMLParser):
    """The anchors of a page, what it points to, and its text outside of code and formulas."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors.update({found.get("id", ""), found.get("name", "")})
        if tag in ("img", "script", "link") and found.get("rel") not in (
            "canonical",
            "prev",
            "next",
        ):
            self.loads += [found[name] for name in ("src", "href") if found.get(name)]
        elif tag == "a" and "href" in found:
            self.links.append(found["href"])
        formula = "arithmatex" in found.get("class", "")
        if formula or tag in UNREAD or (self.open and tag == self.open[-1]):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and tag == self.open[-1]:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open:
            self.text.append(data)


@functools.cache
def page(file: Path) -> Page:
    return Page(file)


def target(file: Path, link: str) -> tuple[Path, str]:
    """Return the file and the anchor that a link of a page means."""
    here = "/" + file.relative_to(SITE).as_posix()
    address, anchor = urldefrag(urljoin(here, link))
    found = SITE / unquote(address).lstrip("/")
    return found / "index.html" if address.endswith("/") else found, unquote(anchor)


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "/usr/bin/chromium"
    profile = tempfile.mkdtemp()
    for flag in [*FLAGS, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver") or "/usr/bin/chromedriver")
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(20)
    yield driver
    driver.quit()
    shutil.rmtree(profile, ignore_errors=True)


def resize(browser: Any, screen: str) -> None:
    width, height = SCREENS[screen]
    # A window stops at some least width, a screen that is emulated does not.
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": screen == "phone"},
    )


def test_there_are_pages() -> None:
    assert len(FILES) > 50


def test_links_lead_somewhere() -> None:
    broken = []
    for file in FILES:
        for link in page(file).links:
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            to, anchor = target(file, link)
            if not to.is_file() or (anchor and anchor not in page(to).anchors):
                broken.append(f"{file.relative_to(SITE)}: {link}")
    assert broken == []


def test_what_pages_load_is_part_of_the_site() -> None:
    missing = [
        f"{file.relative_to(SITE)}: {link}"
        for file in FILES
        for link in page(file).loads
        if urlsplit(link).scheme or link.startswith("//") or not target(file, link)[0].is_file()
    ]
    assert missing == []


def test_the_api_describes_names_and_not_the_modules_that_hold_them() -> None:
    # `optimisers.setup` is a function, and `optimisers/api/setup.py` the module around it.
    found = {
        anchor
        for file in (SITE / "api").rglob("*.html")
        for anchor in page(file).anchors
        if anchor.startswith("optimisers.")
    }
    assert found & sys.modules.keys() <= {f"optimisers.{n}" for n in SHOWN_WHOLE}
    for name in optimisers.__all__:
        if not isinstance(value := getattr(optimisers, name), ModuleType):
            assert found & {f"optimisers.{name}", f"{value.__module__}.{name}"}, name


def test_no_formula_is_left_in_dollars() -> None:
    raw = {
        str(file.relative_to(SITE)): found
        for file in FILES
        if (
            found := re.findall(r"\$[^$\n]{1,60}\$|\\\\(?:frac|beta|eta)", "".join(page(file).text))
        )
    }
    assert raw == {}


def test_every_page_renders_on_a_desktop_and_on_a_phone(browser: Any, address: str) -> None:
    wrong, formulas, styled = [], 0, dict[str, bool]()
    for file in FILES:
        where = file.relative_to(SITE).parent.as_posix()
        resize(browser, "desktop")
        browser.get(urljoin(address, f"{where}/"))
        for screen in SCREENS:
            resize(browser, screen)
            seen = browser.execute_async_script(LOOK)
            wrong += [f"{where} on a {screen}: {fault}" for fault in faults(seen)]
        formulas += seen["rendered"]
        styled |= {rule: used or styled.get(rule, False) for rule, used in seen["styled"]}
        errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        wrong += [f"{where}: {entry['message']}" for entry in errors]
    assert wrong == []
    assert formulas > 200
    assert styled
    assert [rule for rule, used in styled.items() if not used] == []


def faults(seen: dict[str, Any]) -> list[str]:
    """Return what is wrong with a page, from what it said when it was asked."""
    wrong = {
        "no text": seen["text"] < 100,
        "no title": not seen["title"],
        "formulas that are not rendered": seen["formulas"] - seen["rendered"],
        "images that are missing": seen["images"],
        "pictures whose words are too small": seen["small"],
        "wider than the screen": seen["wide"] > 0,
        "parts from elsewhere": seen["foreign"],
    }
    return [f"{name}: {what}" for name, what in wrong.items() if what]


def test_search_finds_a_rule(browser: Any, address: str) -> None:
    resize(browser, "desktop")
    browser.get(address)
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys("ClipGlobalNorm")
    found = WebDriverWait(browser, 10).until(
        lambda b: b.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
    )
    assert any("ClipGlobalNorm" in link.text for link in found)
    assert any("rules" in link.get_attribute("href") for link in found)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_each_mode_has_its_own_pictures(mode: str, browser: Any, address: str) -> None:
    scheme = {"name": "prefers-color-scheme", "value": mode}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get("about:blank")
    # A reader's choice is kept there, and so is what an earlier test looked at.
    stored = {"origin": address.rstrip("/"), "storageTypes": "all"}
    browser.execute_cdp_cmd("Storage.clearDataForOrigin", stored)
    browser.get(urljoin(address, "rules/catalogue/"))
    shown = browser.execute_script(
        "return Array.from(document.querySelectorAll('article img'))"
        ".filter(image => getComputedStyle(image).display != 'none').map(image => image.src)"
    )
    assert len(shown) > 20
    assert all(f"-{mode}.svg" in source for source in shown)
