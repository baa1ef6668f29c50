"""The frontier of many trainings: every point with its values, its command at hand, and the cost of all on top."""

import pytest
from selenium.common.exceptions import NoAlertPresentException
from selenium.webdriver import ActionChains, Keys

from fairveil.errors import InvalidParameterError
from fairveil.report.frontier import frontier_page

POINTS = "return [...document.querySelectorAll('.point')].map((one) => ({...one.dataset}))"
EMBEDDED = "return JSON.parse(document.getElementById('frontier').textContent)"
COMMAND = "return document.getElementById('chosen-text').textContent"
NUMBERS = """
return [...document.querySelectorAll('#points tbody tr')].map((row) => [...row.querySelectorAll('[data-rate] data')]
  .map((one) => Number(one.value)))
"""
COUNTS = """
const counts = {};
for (const one of document.querySelectorAll('*')) { counts[one.localName] = (counts[one.localName] || 0) + 1; }
return counts
"""


def is_drawn(point):
    return point["accuracy"]["value"] is not None and point["gap"]["value"] is not None


def test_every_known_point_is_drawn_once_with_its_values(open_page, made):
    frontier = made.frontier()
    drawn = open_page(frontier_page(frontier)).execute_script(POINTS)
    expected = {place for place, point in enumerate(frontier["points"]) if is_drawn(point)}
    assert {int(one["index"]) for one in drawn} == expected
    assert len(drawn) == len(expected)
    for one in drawn:
        point = frontier["points"][int(one["index"])]
        for name in ("gap", "accuracy"):
            shown = {key: float(one[f"{name}{key.capitalize()}"]) for key in ("value", "low", "high")}
            assert shown == point[name]


def test_the_table_has_every_point_with_its_values(open_page, made):
    frontier = made.frontier()
    browser = open_page(frontier_page(frontier))
    expected = [
        [point[name][key] for name in ("accuracy", "gap") for key in ("value", "low", "high")]
        if is_drawn(point) else []
        for point in frontier["points"]
    ]  # fmt: skip
    assert browser.execute_script(NUMBERS) == expected
    assert "1 point has unknown values" in browser.find_element("id", "undrawn").text
    assert browser.execute_script(EMBEDDED) == frontier


def test_one_panel_an_epsilon_on_the_same_axes(open_page, made):
    browser = open_page(frontier_page(made.frontier()))
    headings = browser.execute_script(
        "return [...document.querySelectorAll('.panel h3')].map((one) => one.textContent)"
    )
    assert headings == ["Epsilon 0.5", "Epsilon 1", "Epsilon 3", "Not private"]
    axes = browser.execute_script(
        "return [...document.querySelectorAll('.panel svg')].map((svg) =>"
        " [...svg.querySelectorAll('.tick')].map((one) => one.textContent + one.getAttribute('x')).join())"
    )
    assert len(set(axes)) == 1


def test_points_of_a_method_are_joined_in_the_order_of_their_tolerance(open_page, made):
    browser = open_page(frontier_page(made.frontier()))
    joins = browser.execute_script(
        "return [...document.querySelectorAll('#panel-0 .join')].map((one) =>"
        " [parseFloat(one.getAttribute('x1')), parseFloat(one.getAttribute('x2'))])"
    )
    assert len(joins) == 4
    assert all(start < end for start, end in joins)


def test_methods_differ_in_colour_and_in_shape(open_page, made):
    browser = open_page(frontier_page(made.frontier()))
    keys = browser.execute_script(
        "return [...document.querySelectorAll('.legend .key use')].map((one) =>"
        " [getComputedStyle(one).fill, one.getAttribute('href')])"
    )
    assert len(keys) == 3
    assert len({colour for colour, _ in keys}) == len({shape for _, shape in keys}) == 3


def test_the_composed_epsilon_stands_on_top_and_is_the_largest_text(open_page, made):
    browser = open_page(frontier_page(made.frontier()))
    total = browser.find_element("id", "total")
    assert browser.execute_script("return Number(arguments[0].querySelector('data').value)", total) == 5.2
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('body *')].map((one) => parseFloat(getComputedStyle(one).fontSize))"
    )
    assert float(total.value_of_css_property("font-size")[:-2]) == max(sizes)
    assert "spent the total" in browser.find_element("id", "cost").text
    n_open = sum(point["epsilon"] is None for point in made.frontier()["points"])
    assert f"{n_open} points are not private" in browser.find_element("id", "open").text
    assert "2 are missing" in browser.find_element("id", "missing").text


def test_without_a_bound_for_all_no_number_is_shown(open_page, made):
    browser = open_page(frontier_page(made.frontier() | {"epsilon_spent_total": None}))
    assert browser.find_element("id", "total").text == "no bound"


def test_nothing_is_said_to_be_missing_when_all_are_there(open_page, made):
    frontier = made.frontier()
    browser = open_page(frontier_page(frontier | {"n_planned": len(frontier["points"])}))
    assert not browser.find_elements("id", "missing")


@pytest.mark.parametrize("key", [Keys.ENTER, Keys.SPACE])
def test_a_point_is_reached_by_tab_and_chosen_by_a_key(open_page, made, key):
    frontier = made.frontier()
    browser = open_page(frontier_page(frontier))
    for _ in range(30):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        active = browser.switch_to.active_element
        if "point" in (active.get_attribute("class") or ""):
            break
    ActionChains(browser).send_keys(Keys.ARROW_RIGHT).perform()
    active = browser.switch_to.active_element
    assert browser.find_element("id", "tip").get_property("textContent") == active.get_attribute("aria-label")
    ActionChains(browser).send_keys(key).perform()
    index = active.get_attribute("data-index")
    assert browser.execute_script(COMMAND) == frontier["points"][int(index)]["command"]
    assert active.get_attribute("aria-pressed") == "true"
    assert browser.find_element("css selector", "#chosen[aria-live=polite] pre").is_displayed()
    assert browser.find_element("css selector", "tr.picked").get_attribute("data-index") == index


def test_a_click_on_a_point_or_on_a_row_chooses_it(open_page, made, picture):
    frontier = made.frontier()
    browser = open_page(frontier_page(frontier))
    marks = browser.find_elements("css selector", ".point")
    for mark in (marks[2], marks[-1]):
        browser.execute_script(
            "arguments[0].scrollIntoView({block: 'center'})", mark.find_element("css selector", ".shape")
        )
        ActionChains(browser).move_to_element(mark.find_element("css selector", ".shape")).click().perform()
        index = int(mark.get_attribute("data-index"))
        assert browser.execute_script(COMMAND) == frontier["points"][index]["command"]
    picture(browser, "frontier-chosen")
    for place in (0, len(frontier["points"]) - 1):
        button = browser.find_element("css selector", f".pick[data-index='{place}']")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
        button.click()
        assert browser.execute_script(COMMAND) == frontier["points"][place]["command"]
        pressed = browser.find_elements("css selector", "[aria-pressed=true]")
        assert {one.get_attribute("data-index") for one in pressed} == {str(place)}


def test_the_command_is_copied_from_a_page_on_disk(open_page, made):
    frontier = made.frontier()
    browser = open_page(frontier_page(frontier))
    browser.execute_script("document.querySelector('.pick').click()")
    browser.find_element("css selector", ".copy").click()
    assert browser.find_element("css selector", ".copied").text == "Copied"
    browser.execute_script(
        "const box = document.createElement('textarea'); box.id = 'paste'; document.body.prepend(box)"
    )
    box = browser.find_element("id", "paste")
    box.send_keys(Keys.CONTROL, "v")
    assert box.get_property("value") == frontier["points"][0]["command"]


def test_hostile_text_is_shown_and_does_nothing(open_page, made):
    frontier = made.hostile_frontier()
    browser = open_page(frontier_page(frontier))
    inside = browser.execute_script(COUNTS)
    for place, point in enumerate(frontier["points"][: len(made.HOSTILE)]):
        browser.execute_script(f"document.querySelector('.pick[data-index=\"{place}\"]').click()")
        assert browser.execute_script(
            "return arguments[0] === document.getElementById('chosen-text').textContent", point["command"]
        )
    with pytest.raises(NoAlertPresentException):
        _ = browser.switch_to.alert
    assert browser.execute_script(COUNTS) == inside
    assert open_page(frontier_page(made.tamed(frontier))).execute_script(COUNTS) == inside


def test_two_models_are_two_series(open_page, made):
    frontier = made.frontier()
    frontier["points"] = [point | {"model": ("linear", "mlp")[i % 2]} for i, point in enumerate(frontier["points"])]
    browser = open_page(frontier_page(frontier))
    names = [one.text for one in browser.find_elements("css selector", ".legend li")]
    assert names == [f"{method}, {model}" for method in ("dp2dp", "raco", "dpsgd") for model in ("linear", "mlp")]


def test_what_is_missing_is_refused_by_name(made):
    frontier = made.frontier()
    del frontier["n_planned"]
    with pytest.raises(InvalidParameterError, match="'n_planned'"):
        frontier_page(frontier)
