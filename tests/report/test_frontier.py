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
BESIDE = """
return [...document.querySelectorAll('.point')].map((one) =>
  [one.dataset.index, one.querySelector('.beside').textContent])
"""
OVERLAPS = """
const found = [];
for (const svg of document.querySelectorAll('.panel svg')) {
  const boxes = [...svg.querySelectorAll('.beside, .point .shape')].map((one) => {
    const box = one.getBoundingClientRect();
    const slack = one.classList.contains('beside') ? 2 : 1;  // letters are smaller than their line
    return {is_label: slack == 2, words: one.textContent, left: box.left + slack, right: box.right - slack,
            top: box.top + slack, bottom: box.bottom - slack};
  });
  boxes.forEach((one, i) => boxes.slice(i + 1).forEach((other) => {
    const touch = one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
    if (touch && (one.is_label || other.is_label)) { found.push([one.words, other.words]); }
  }));
}
return found
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


def test_the_sweep_and_everything_ever_spent_are_two_numbers(open_page, made):
    browser = open_page(frontier_page(made.frontier()))
    number = "return Number(document.querySelector(arguments[0] + ' data').value)"
    assert [browser.execute_script(number, name) for name in ("#sweep", "#total", "#besides")] == [4.7, 5.2, 1.9]
    sizes = [browser.find_element("id", name).value_of_css_property("font-size") for name in ("sweep", "total")]
    assert sizes[0] == sizes[1]
    facts = made.frontier()
    for name in ("epsilon_sweep", "epsilon_sweep_replace_one", "epsilon_besides_sweep"):
        del facts[name]  # as earlier versions wrote them
    browser = open_page(frontier_page(facts))
    assert not browser.find_elements("id", "sweep") and not browser.find_elements("id", "besides")


def test_every_point_shows_its_tolerance_and_verdict(open_page, made):
    frontier = made.frontier()
    shown = open_page(frontier_page(frontier)).execute_script(BESIDE)
    signs = {"holds": "✓", "does not hold": "✕", "not enough data": "?"}
    assert len(shown) == sum(map(is_drawn, frontier["points"]))
    for index, text in shown:
        point = frontier["points"][int(index)]
        asked = point["tolerance"]
        assert text == ("none" if asked is None else f"{asked:g} {signs[point['verdict']]}")


def test_a_point_that_another_surpasses_is_pale_and_says_so(open_page, made):
    frontier = made.frontier()
    browser = open_page(frontier_page(frontier))
    pale = set(browser.execute_script(
        "return [...document.querySelectorAll('.point.pale')].map((one) => Number(one.dataset.index))"
    ))  # fmt: skip

    def is_surpassed(point):
        return any(
            other["epsilon"] == point["epsilon"] and other is not point
            and other["accuracy"]["value"] >= point["accuracy"]["value"]
            and other["gap"]["value"] <= point["gap"]["value"]
            for other in frontier["points"] if is_drawn(other)
        )  # fmt: skip

    assert pale == {i for i, one in enumerate(frontier["points"]) if is_drawn(one) and is_surpassed(one)} != set()
    for mark in browser.find_elements("css selector", ".point.pale"):
        assert mark.get_attribute("aria-label").endswith("another point is better in both")
    assert "Pale points" in browser.find_element("id", "signs").text


@pytest.mark.parametrize("width", [390, 700, 1000, 1200])
def test_no_label_touches_a_label_or_a_mark(open_page, made, width):
    assert open_page(frontier_page(made.frontier()), width).execute_script(OVERLAPS) == []
    assert open_page(frontier_page(crowded(made.frontier())), width).execute_script(OVERLAPS) == []


def crowded(frontier):
    """Ten points of two methods at one epsilon, some of them in nearly one place."""
    point = frontier["points"][0]
    values = [(0.012 * (i % 5), 0.83 + 0.004 * (i // 2)) for i in range(10)]
    points = [
        point | {"method": ("dp2dp", "raco")[i % 2], "tolerance": 0.01 * i,
                 "gap": {"value": gap, "low": 0.0, "high": 0.08},
                 "accuracy": {"value": accuracy, "low": 0.82, "high": 0.87}}
        for i, (gap, accuracy) in enumerate(values)
    ]  # fmt: skip
    return frontier | {"points": points}


def test_charts_use_the_width(open_page, made):
    widths = (
        "return [document.querySelector('main'), ...document.querySelectorAll('.panel svg')].map((e) => e.clientWidth)"
    )
    page, *charts = open_page(frontier_page(made.frontier())).execute_script(widths)
    assert min(charts) > 0.45 * page  # two beside each other
    page, chart = open_page(frontier_page(crowded(made.frontier()))).execute_script(widths)
    assert chart > 0.95 * page
    page, *charts = open_page(frontier_page(made.frontier()), 390).execute_script(widths)
    assert min(charts) > 0.95 * page


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
