"""A constraint from a short readable expression of rates: text in, one bound out, nothing evaluated."""

import math
import re
from dataclasses import dataclass
from typing import ClassVar

from fairveil.errors import InvalidParameterError
from fairveil.fairness.rates import BARE_NAME, CLASSLESS, RATES, Bound, Population, Rate

Terms = list[tuple[float, Rate | None]]
"""Weights of rates; a plain number is a weight of no rate."""

NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
WORD = re.compile(r"[^\W\d]\w*")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|' r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
COMPARISON = re.compile(r"<=|>=")
SIGN = re.compile(r"[+-]")
NOT = re.compile(r"not(?=[\s\"'])")
TOKEN = re.compile(r"[<>=!]+|[\w.]+|.", re.DOTALL)

EXAMPLE = "write for instance selection_rate[sex=Female] >= 0.8 * selection_rate[sex=Male]"
QUOTE = "quote names that hold other signs than letters, digits and _ . + / -"


@dataclass(frozen=True)
class Rule:
    """A bound on rates, written as text: two sums of rates and numbers compared by <= or >=.

    A rate is a name of `RATES`, then perhaps a class in round brackets (without one it is the positive of two), then
    perhaps people in square brackets: `[sex=Female, race=Black]` for those of both groups, `[not sex=Female]` for
    everyone else whose group is known. Names with other signs than letters, digits and `_ . + / -` are quoted.

    Parameters
    ----------
    text : str
        Sums of `number`, `rate` and `number * rate`, compared by `<=` or `>=`.

    Examples
    --------
    >>> rule = Rule("selection_rate[sex=Female] >= 0.8 * selection_rate[sex=Male]")
    >>> print(rule.bound)
    0.8 * selection_rate[sex=Male] - selection_rate[sex=Female] <= 0
    """

    text: str

    name: ClassVar[str] = "rule"

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InvalidParameterError(f"Expected a rule as text, got {type(self.text).__name__}; {EXAMPLE}.")
        _parse(self.text)

    @property
    def bound(self) -> Bound:
        """The inequality: numbers add up into its limit, a rate that occurs twice is one term."""
        return _parse(self.text)

    def bounds(self, people: Population) -> tuple[Bound, ...]:
        """Return the one inequality, if these people have the attributes, groups and classes it names."""
        bound = self.bound
        for _, rate in bound.terms:
            rate.forms(people)
            if people.n_classes > 2 and rate.of_class is None and rate.name not in CLASSLESS:
                raise InvalidParameterError(
                    f"Expected a class of {rate.name}, because there are {people.n_classes}, got none; "
                    f"write {rate.name}(...) with one of {', '.join(people.classes)}."
                )
        return (bound,)


def _parse(text: str) -> Bound:
    left, at = _sum(text, 0)
    comparison = COMPARISON.match(text, at)
    if comparison is None:
        advice = "write two rules, <= and >=, to bound both sides" if text[at : at + 1] == "=" else EXAMPLE
        raise _refused("+, -, <= or >=", text, at, advice)
    right, at = _sum(text, comparison.end())
    if at < len(text):
        advice = "write two rules for two comparisons" if COMPARISON.match(text, at) else EXAMPLE
        raise _refused("+, - or the end", text, at, advice)
    return _bound(left, right) if comparison[0] == "<=" else _bound(right, left)


def _bound(smaller: Terms, larger: Terms) -> Bound:
    """Return smaller - larger <= limit, like terms added."""
    weights: dict[Rate, float] = {}
    limit = 0.0
    for sign, terms in ((1, smaller), (-1, larger)):
        for weight, rate in terms:
            if rate is None:
                limit -= sign * weight
            else:
                weights[rate] = weights.get(rate, 0.0) + sign * weight
    used = tuple((weight, rate) for rate, weight in weights.items() if weight)
    if not used:
        raise InvalidParameterError(
            f"Expected at least one rate that does not cancel, got none in the rule; {EXAMPLE}."
        )
    if not all(map(math.isfinite, [limit, *weights.values()])):
        raise InvalidParameterError(f"Expected finite numbers in the rule, got a sum that is not; {EXAMPLE}.")
    return Bound(used, limit)


def _sum(text: str, at: int) -> tuple[Terms, int]:
    terms: Terms = []
    at = _skip(text, at)
    while not terms or SIGN.match(text, at):
        sign = SIGN.match(text, at)
        at = _skip(text, sign.end()) if sign else at
        weight, rate, at = _term(text, at)
        terms.append((-weight if sign and sign[0] == "-" else weight, rate))
    return terms, at


def _term(text: str, at: int) -> tuple[float, Rate | None, int]:
    number = NUMBER.match(text, at)
    if number is None:
        rate, at = _rate(text, at)
        return 1.0, rate, at
    weight = float(number[0])
    if not math.isfinite(weight):
        raise _refused("a finite number", text, at, "write a smaller one")
    after = _skip(text, number.end())
    if not text.startswith("*", after):
        return weight, None, after
    rate, at = _rate(text, _skip(text, after + 1))
    return weight, rate, at


def _rate(text: str, at: int) -> tuple[Rate, int]:
    word = WORD.match(text, at)
    if word is None:
        raise _refused("a rate or a number", text, at, EXAMPLE)
    if word[0] not in RATES:
        raise _refused("a rate or a finite number", text, at, f"rates are {', '.join(RATES)}")
    name, of_class, at = word[0], None, _skip(text, word.end())
    if text.startswith("(", at):
        if name in CLASSLESS:
            raise _refused(f"no class after {name}", text, at, "it is about all classes")
        of_class, at = _name(text, _skip(text, at + 1), "a class")
        at = _closed(text, at, ")")
    if not text.startswith("[", at):
        return Rate(name, (), of_class), at
    where, is_rest, at = _people(text, _skip(text, at + 1))
    return Rate(name, where, of_class, is_rest), at


def _people(text: str, at: int) -> tuple[tuple[tuple[str, str], ...], bool, int]:
    rest = NOT.match(text, at)
    at = _skip(text, rest.end()) if rest else at
    where: dict[str, str] = {}
    while True:
        start = at
        attribute, at = _name(text, at, "an attribute")
        if attribute in where:
            raise _refused("each attribute once", text, start, "people have one group of each")
        if not text.startswith("=", at):
            raise _refused("= and a group", text, at, QUOTE)
        where[attribute], at = _name(text, _skip(text, at + 1), "a group")
        if not text.startswith(",", at):
            return tuple(where.items()), rest is not None, _closed(text, at, "]")
        at = _skip(text, at + 1)


def _name(text: str, at: int, what: str) -> tuple[str, int]:
    quoted = QUOTED.match(text, at)
    if quoted:
        inside = quoted[1] if quoted[2] is None else quoted[2]
        return re.sub(r"\\(.)", r"\1", inside, flags=re.DOTALL), _skip(text, quoted.end())
    bare = BARE_NAME.match(text, at)
    if bare is None:
        raise _refused(what, text, at, "close the quote" if text[at : at + 1] in ("'", '"') else QUOTE)
    return bare[0], _skip(text, bare.end())


def _closed(text: str, at: int, bracket: str) -> int:
    if not text.startswith(bracket, at):
        raise _refused(f"{bracket!r}" if bracket == ")" else "',' or ']'", text, at, QUOTE)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    """Return the next place that is no blank."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _refused(expected: str, text: str, at: int, advice: str) -> InvalidParameterError:
    token = TOKEN.match(text, at)
    got = "the end" if token is None else repr(token[0])
    return InvalidParameterError(f"Expected {expected}, got {got} at character {at + 1} of the rule; {advice}.")
