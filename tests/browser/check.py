"""Opens reports in headless Chromium: accessibility, widths, keys and print. Exits 1 if anything is amiss.

``python check.py FOLDER AXE``: a folder of reports and axe-core's ``axe.min.js``. Needs playwright and a Chromium,
which ``CHROMIUM`` names. Pictures of every page go into the folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

DESKTOP, PHONE = (1280, 900), (390, 844)
OVERFLOWING = """[...document.querySelectorAll('.scroll')].filter((frame) => frame.scrollWidth > frame.clientWidth)
  .map((frame) => frame.getAttribute('aria-label'))"""
BROKEN = """[...document.querySelectorAll('td.path')].filter((cell) => {
  const range = document.createRange();
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node && !cell.closest('.facts'); node = texts.nextNode()) {
    range.selectNodeContents(node);
    const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
    if (lines.size > 1 && !node.data.includes(' ')) return true;
  }
  return false;
}).length"""
FOLDED = "document.activeElement.matches('summary') && document.activeElement.innerText.startsWith('All')"
ORDER = """[...document.querySelectorAll('table.sort tbody tr')].map((row) => row.cells[%d].dataset.v)"""


def opened(browser: Browser, file: Path, size: tuple[int, int], scheme: Any, bypass: bool) -> Page:
    """The page; whatever it says on its console fails the check. ``bypass`` lets axe in past its content policy."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme,
                                  bypass_csp=bypass, offline=True)  # fmt: skip
    page = context.new_page()
    page.goto(file.as_uri())
    return page


def look(browser: Browser, file: Path, axe: str) -> list[str]:
    """What is wrong with one report, light and dark, on a desktop and on a phone, all of it unfolded."""
    wrong = []
    for scheme in ("light", "dark"):
        for size in (DESKTOP, PHONE):
            page = opened(browser, file, size, scheme, bypass=True)
            page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
            page.evaluate(axe)
            found = page.evaluate("axe.run(document)")
            where = f"{file.stem}, {scheme}, {size[0]} px"
            wrong += [f"{where}: axe {each['id']}: {each['nodes'][0]['html'][:120]}" for each in found["violations"]]
            if page.evaluate("document.documentElement.scrollWidth") > size[0]:
                wrong.append(f"{where}: the page scrolls to the side")
            if size == DESKTOP and (frames := page.evaluate(OVERFLOWING)):
                wrong.append(f"{where}: cut off: {', '.join(frames)}")
            if count := page.evaluate(BROKEN):
                wrong.append(f"{where}: {count} names are broken within a word")
            print(f"{where}: {len(found['violations'])} violations, {len(found['passes'])} rules passed")
            page.screenshot(path=str(file.with_name(f"{file.stem}-{scheme}-{size[0]}.png")), full_page=True)
            page.context.close()
    return wrong


def press(browser: Browser, file: Path) -> list[str]:
    """What does not work by keys alone, under the page's own content policy."""
    page = opened(browser, file, DESKTOP, "light", bypass=False)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    if not page.locator(".tools").count():
        return [f"{file.stem}: the script does not run under the page's content policy"]
    page.keyboard.press("Tab")
    while not page.evaluate(FOLDED):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    wrong, told = [], page.locator(".tools output")
    rows = page.locator("table.sort tbody tr").count()
    page.keyboard.press("Tab")
    page.keyboard.type("BLOCK.1.norm" if file.stem != "passing" else "level blocks.17.")
    if told.inner_text() != f"1 of {rows} shown" or page.locator("table.sort tbody tr:visible").count() != 1:
        wrong.append(f"{file.stem}: the filter leaves {told.inner_text()}")
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    bad = page.locator("table.sort tbody tr", has=page.locator(".bad")).count()
    if told.inner_text() != f"{bad} of {rows} shown":
        wrong.append(f"{file.stem}: {bad} layers are beyond a bound, {told.inner_text()}")
    page.keyboard.press("Space")
    while not page.evaluate("document.activeElement.innerText.startsWith('network')"):
        page.keyboard.press("Tab")
    column = page.evaluate("document.activeElement.closest('th').cellIndex")
    before = [float(value) for value in page.evaluate(ORDER % column)]
    for key, downward in (("Space", True), ("Enter", False), ("Space", True)):
        page.keyboard.press(key)
        after = [float(value) for value in page.evaluate(ORDER % column)]
        state = page.evaluate("document.activeElement.closest('th').getAttribute('aria-sort')")
        if after != sorted(before, reverse=downward) or state != ("descending" if downward else "ascending"):
            wrong.append(f"{file.stem}: {key} sorts {state}: {after[:3]}")
    page.evaluate("document.querySelector('table.sort').closest('.scroll').scrollTop = 600")
    head, frame = page.locator("table.sort th").first.bounding_box(), page.locator(".scroll:has(.sort)").bounding_box()
    top = head["y"] - frame["y"] if head and frame else 1e9
    if abs(top) > 2:
        wrong.append(f"{file.stem}: the head of the table moves away by {top} px")
    page.pdf(path=str(file.with_suffix(".pdf")), format="A4")
    page.context.close()
    return wrong + [f"{file.stem}: the console says {text}" for text in said]


def main(folder: Path, axe: Path) -> int:
    files, wrong = sorted(folder.glob("*.html")), list[str]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox"])
        for file in files:
            wrong += look(browser, file, axe.read_text(encoding="utf-8")) + press(browser, file)
        browser.close()
    print("\n".join(wrong) if wrong else f"{len(files)} reports, nothing wrong")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2])))
