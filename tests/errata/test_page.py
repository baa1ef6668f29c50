"""Does docs/errata.md keep its word? Every item names tests that exist, and these tests hold the figures it quotes."""

import ast
import re
from functools import cache

from _support.source import ROOT

PAGE = (ROOT / "docs" / "errata.md").read_text()
RANKS = {"Critical", "Worth knowing", "Typographic"}
NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?"
# Figures that follow from others or describe a source, so that no test needs to hold them.
EXPLAINED = {
    "RaCO-DP 7": {"99"},  # one less than the 100 of the test
    "RaCO-DP 9": {"2.77"},  # 0.8 sqrt 12
    "DP2DP 5": {".0143"},  # a hundredth of the 1.43 of the test
    "DP2DP 10": {"1e16"},  # written 10**16
    "DP2DP 12": {"2024"},  # a year
    "Decoupled parity 2": {"60324", "48000"},  # twice the rows; what the paper says
}
PLACES = re.compile(
    r"(?:Theorem|Lemma|Equation|Appendi(?:x|ce)|Section|Table|Figure|Definition|Remark|Corollary|Proposition|[Ii]tem"
    r"|Algorithm|[Ll]ine|Phase|groups?)(?:s|es)? [A-Z]?\.?[\d.]+(?:(?:,| and| to| or) [A-Z]?\.?\d[\d.]*)*"
    r"|\w_\d|\^\(?\d\)?"
)


def items() -> dict[str, str]:
    """Return the text of every item under its name: the paper and its number."""
    found = {}
    for paper in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        for item in re.split(r"^(?=\*\*\d+\. )", paper, flags=re.MULTILINE)[1:]:
            name = f"{paper.splitlines()[0]} {item[2:].partition('.')[0]}"
            assert name not in found, f"two items are called {name}"
            found[name] = item
    return found


def named_tests(item: str) -> list[tuple[str, str]]:
    return re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", item)


@cache
def numbers_in_code(path: str) -> list[float]:
    """Return the numbers in a file's code, those in docstrings and comments left out."""
    tree = ast.parse((ROOT / path).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Module) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Pass()
    return [float(number) for number in re.findall(NUMBER, ast.unparse(tree))]


def figures_of(item: str) -> list[str]:
    """Return the figures that an item quotes: no places in the paper, no numbers of items, no code."""
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|^\*\*\d+\.", " ", item)
    text = PLACES.sub(" ", text.replace("\n", " ")).replace(",", "")
    return [figure.rstrip(".") for figure in re.findall(rf"(?<![\w.]){NUMBER}", text)]


def is_held(figure: str, numbers: list[float]) -> bool:
    """Say whether a number of the code rounds to the figure, as a value, a percentage or in millions."""
    value, decimals = float(figure), len(figure.partition(".")[2]) if "e" not in figure else 12
    scaled = (number * scale for number in numbers for scale in (1, 100, 1e-6))
    return any(abs(round(one, decimals) - value) <= 1e-9 * value for one in scaled)


def test_every_item_has_one_rank_and_names_tests():
    assert set(re.findall(r"^### (.*)$", PAGE, re.MULTILINE)) == RANKS
    without = {name for name, item in items().items() if not named_tests(item)}
    assert without == {"RaCO-DP 20", "DP2DP 15", "PF-LD 11"}  # letters and squares: nothing to compute
    assert len(items()) == 80


def test_every_figure_of_the_page_is_held_by_a_test_that_its_item_names():
    small = {"0", "1", "2", "3", "4", "5", "10", "100"}  # settings and counts, which every file has
    missing = []
    for name, item in items().items():
        numbers = [number for path in {path for path, _ in named_tests(item)} for number in numbers_in_code(path)]
        quoted = set(figures_of(item)) - small - EXPLAINED.get(name, set())
        missing += [f"{name}: {figure}" for figure in sorted(quoted) if not is_held(figure, numbers)]
    assert not missing
