"""What every page promises, checked in a real browser: silent, alone, readable by everyone, printable, whole."""

import base64
import json
import re

import pytest
from selenium.webdriver.common.print_page_options import PrintOptions

MOST_PAGES = {"usual": 9, "fairdp": 9, "many": 16, "not-private": 6, "hostile": 16, "frontier": 5,
              "hostile-frontier": 8, "empty-frontier": 2, "bench": 5, "hostile-bench": 8}  # fmt: skip
PICTURED = ("usual", "many", "frontier")
CONTRAST = r"""
const parts = (colour) => {
  const numbers = colour.match(/[\d.]+/g).map(Number);
  return [numbers[0], numbers[1], numbers[2], numbers.length > 3 ? numbers[3] : 1];
};
const straight = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = (c) => c.slice(0, 3).map((v) => straight(v / 255))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const colour = parts(getComputedStyle(one).backgroundColor);
    if (colour[3] === 1) { return colour; }
  }
  return [255, 255, 255, 1];
};
const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const wrong = [];
let seen = 0;
for (const element of document.querySelectorAll("body *")) {
  const words = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const shape = element.matches("circle.dot, use.shape");
  const hidden = !element.getClientRects().length || element.matches("script, style, title, desc");
  if (hidden || !(words || shape)) { continue; }
  const style = getComputedStyle(element);
  const drawn = element instanceof SVGElement;
  const colour = parts(shape && element.matches(".shape") ? style.stroke : drawn ? style.fill : style.color);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 600);
  const found = ratio(colour, behind(drawn ? element.closest("svg").parentElement : element));
  seen += 1;
  if (found < (shape || large ? 3 : 4.5)) { wrong.push([element.outerHTML.slice(0, 120), found]); }
}
return {wrong, seen};
"""
UNREADABLE = r"""
const wrong = [];
const bad = (rule, element) => wrong.push([rule, element.outerHTML.slice(0, 160)]);
for (const svg of document.querySelectorAll("svg")) {
  if (svg.getAttribute("role") !== "img") { bad("svg is an image", svg); }
  for (const part of ["title", "desc"]) {
    const found = svg.querySelector(`:scope > ${part}`);
    if (!found || !found.textContent.trim()) { bad("svg has " + part, svg); }
  }
}
for (const table of document.querySelectorAll("table")) {
  if (!table.caption || !table.caption.textContent.trim()) { bad("table has a caption", table); }
  for (const cell of table.querySelectorAll("th")) { if (!["row", "col"].includes(cell.scope)) { bad("scope", cell); } }
  for (const row of table.querySelectorAll("tr")) { if (!row.querySelector("th")) { bad("row has a header", row); } }
}
for (const one of document.querySelectorAll("button, a, [tabindex='0'], [role=button]")) {
  if (!(one.getAttribute("aria-label") || one.textContent).trim()) { bad("name", one); }
}
let level = 0;
for (const heading of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
  const own = Number(heading.tagName[1]);
  if (own > level + 1) { bad("heading skips a level", heading); }
  level = own;
}
if (document.querySelectorAll("h1").length !== 1) { bad("one h1", document.body); }
for (const landmark of ["header", "nav", "main", "footer"]) {
  if (document.querySelectorAll(`body > ${landmark}`).length !== 1) { bad("landmark " + landmark, document.body); }
}
for (const section of document.querySelectorAll("section, article")) {
  if (!document.getElementById(section.getAttribute("aria-labelledby"))) { bad("section is named", section); }
}
const names = [...document.querySelectorAll("[id]")].map((one) => one.id);
for (const name of names.filter((one, place) => names.indexOf(one) !== place)) { wrong.push(["id twice", name]); }
for (const link of document.querySelectorAll("a[href], use[href]")) {
  if (!document.getElementById(link.getAttribute("href").slice(1))) { bad("leads somewhere", link); }
}
if (!document.documentElement.lang) { bad("lang", document.body); }
return wrong;
"""


def requests(browser):
    entries = [json.loads(one["message"])["message"] for one in browser.get_log("performance")]
    return {one["params"]["request"]["url"] for one in entries if one["method"] == "Network.requestWillBeSent"}


def test_the_console_is_silent_and_the_network_unused(open_page, any_page):
    browser = open_page(any_page[1])
    asked = requests(browser)
    assert [url for url in asked if not url.startswith("data:")] == [browser.current_url]
    assert browser.get_log("browser") == []


def test_anybody_can_find_their_way(open_page, any_page):
    browser = open_page(any_page[1])
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.execute_script(UNREADABLE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_and_every_mark_stands_out(open_page, any_page, scheme, picture):
    name, page = any_page
    browser = open_page(page, scheme=scheme)
    if name in PICTURED:
        picture(browser, f"{name}-{scheme}")
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    found = browser.execute_script(CONTRAST)
    assert found["seen"] > 30
    assert found["wrong"] == []


def test_dark_is_dark_and_light_is_light(open_page, any_page):
    colour = "return getComputedStyle(document.body).backgroundColor"
    shown = {scheme: open_page(any_page[1], scheme=scheme).execute_script(colour) for scheme in ("light", "dark")}
    assert min(map(int, re.findall(r"\d+", shown["light"]))) > 240
    assert max(map(int, re.findall(r"\d+", shown["dark"]))) < 40


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_no_page_scrolls_sideways(open_page, any_page, width, picture):
    name, page = any_page
    browser = open_page(page, width=width)
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    outside = browser.execute_script(
        "return [...document.querySelectorAll('main *')].filter((one) => !one.closest('.scroll, defs')"
        " && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 100))"
    )
    assert outside == []
    if name in PICTURED and width == 360:
        browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = false")
        picture(browser, f"{name}-{width}")


def test_it_prints_on_a_few_white_pages(open_page, any_page, artefacts):
    name, page = any_page
    browser = open_page(page, scheme="dark")
    options = PrintOptions()
    options.page_width, options.page_height = 21.0, 29.7
    sheets = base64.b64decode(browser.print_page(options))
    (artefacts / f"print-{name}.pdf").write_bytes(sheets)
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", sheets)) <= MOST_PAGES[name]


def test_print_is_white_even_if_the_screen_is_dark_and_hides_buttons(open_page, any_page, picture):
    name, page = any_page
    browser = open_page(page, width=680)
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    if name in PICTURED:
        picture(browser, f"{name}-print")
    colours = browser.execute_script(
        "return ['html', 'body', 'main'].map((n) => getComputedStyle(document.querySelector(n)).backgroundColor)"
    )
    assert set(colours) <= {"rgb(255, 255, 255)", "rgba(0, 0, 0, 0)"}
    assert browser.execute_script(CONTRAST)["wrong"] == []
    assert not [one for one in browser.find_elements("css selector", "button") if one.is_displayed()]


def test_no_chart_is_taller_than_a_printed_page(open_page, any_page):
    browser = open_page(any_page[1], width=680)
    tallest = browser.execute_script(
        "return Math.max(0, ...[...document.querySelectorAll('svg.chart')].map((one) => one.clientHeight))"
    )
    assert tallest < 940


def test_a_script_that_got_in_would_not_run_nor_reach_out(open_page, any_page):
    browser = open_page(any_page[1])
    browser.execute_script(
        "const one = document.createElement('script'); one.textContent = 'window.got_in = true';"
        "document.body.append(one); document.body.setAttribute('onclick', 'window.got_in = true');"
        "document.body.click()"
    )
    assert browser.execute_script("return window.got_in === undefined")
    answer = browser.execute_async_script(
        "const tell = arguments[0]; fetch(location.href).then(() => tell('sent'), () => tell('refused'))"
    )
    assert answer == "refused"
    browser.get_log("browser")
