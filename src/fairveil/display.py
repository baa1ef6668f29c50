"""Plots of what was certified and of many trainings, in the manner of scikit-learn's displays.

Everything that is drawn was released before, so drawing it costs no privacy. Plots need matplotlib, which
``pip install 'fairveil[plot]'`` installs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fairveil.certificates import Certificate, Claim
from fairveil.errors import InvalidParameterError, MissingPackageError
from fairveil.fairness.evaluation import Verdict
from fairveil.methods.registry import METHODS
from fairveil.report.charts import Measurement, measurement
from fairveil.report.formatting import compact, level
from fairveil.report.frontier import frontier_of
from fairveil.report.text import gap_name

MOST_CLAIMS = 12
"""Bounds that a plot shows, those nearest their limits first."""

VERDICT_COLORS = {Verdict.HOLDS: "tab:green", Verdict.BROKEN: "tab:red", Verdict.ABOVE: "tab:orange"}
"""Every other verdict is drawn in gray."""

MARKERS = "os^DvPX*"


def _new_axes(size: tuple[float, float]) -> Any:
    """Return the axes of a new figure of this size in inches."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingPackageError(
            "Expected matplotlib for plots, got an environment without it; install it with pip install "
            "'fairveil[plot]'."
        ) from None
    return plt.subplots(figsize=size, layout="constrained")[1]


class CertificateDisplay:
    """A plot of every certified bound: what was measured, how large it may be, and its limit.

    Use `from_estimator` or `from_certificate` to make and draw one. All parameters are stored as attributes.

    Parameters
    ----------
    certificate : Certificate
        What is certified, as `FairClassifier.certificate_` has it.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes of the last `plot`.
    figure_ : matplotlib Figure
        The figure that contains them.

    Examples
    --------
    >>> from fairveil import CertificateDisplay, DemographicParity, FairClassifier, load_dataset
    >>> people = load_dataset("adult")
    >>> clf = FairClassifier(DemographicParity(0.05), sensitive="sex", aware=True, schema=people.schema)
    >>> display = CertificateDisplay.from_estimator(clf.fit(people.X, people.y))
    >>> len(display.ax_.texts)
    2
    """

    ax_: Any
    figure_: Any

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate

    @classmethod
    def from_estimator(cls, estimator: Any, *, confidence: float = 0.95, ax: Any = None) -> "CertificateDisplay":
        """Draw what is certified about a fitted classifier.

        Parameters
        ----------
        estimator : FairClassifier
            A fitted classifier whose rule was measured on held-out people.
        confidence : float
            The confidence of the certificate.
        ax : matplotlib Axes, optional
            Where to draw; None makes a new figure.

        Returns
        -------
        CertificateDisplay
            The display, drawn.
        """
        return cls.from_certificate(estimator.certificate(confidence), ax=ax)

    @classmethod
    def from_certificate(cls, certificate: Certificate, *, ax: Any = None) -> "CertificateDisplay":
        """Draw a certificate, for example one that `FairClassifier.certify` returned.

        Parameters
        ----------
        certificate : Certificate
            What is certified.
        ax : matplotlib Axes, optional
            Where to draw; None makes a new figure.

        Returns
        -------
        CertificateDisplay
            The display, drawn.
        """
        return cls(certificate).plot(ax=ax)

    def plot(self, ax: Any = None) -> "CertificateDisplay":
        """Draw one line for each bound, from the lower to the upper confidence limit, with its measured value.

        A bound holds if its line ends left of its limit. Of many bounds, those nearest their limits are drawn.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; None makes a new figure.

        Returns
        -------
        CertificateDisplay
            This display.
        """
        found = self.certificate
        if not found.claims:
            raise InvalidParameterError(
                "Expected a certificate with at least one bound to draw, got one without; request a bound."
            )
        claims = sorted(found.claims, key=lambda claim: claim.limit - claim.upper)[:MOST_CLAIMS]
        ax = _new_axes((7.5, 1.4 + 0.55 * len(claims))) if ax is None else ax
        shown: set[str] = set()
        for place, claim in enumerate(claims):
            shown |= _draw_claim(ax, place, claim, shown)
        n_all, nearest = len(found.claims), ""
        if n_all > len(claims):
            nearest = f"; the {len(claims)} of {n_all} bounds that are nearest their limits"
        ax.set(
            xlabel=f"left side of each bound, {level(found.confidence)} confidence{nearest}",
            yticks=[],
            ylim=(len(claims) - 0.6, -0.8),
        )
        ax.margins(x=0.05)
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(shown), frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _draw_claim(ax: Any, place: int, claim: Claim, shown: set[str]) -> set[str]:
    """Draw a bound on its line, and return the names that it adds to the legend."""
    verdict, color = str(claim.verdict), VERDICT_COLORS.get(claim.verdict, "tab:gray")
    names = {verdict, *([] if claim.verdict is Verdict.MEASURED else ["limit"])}
    beside = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "fontsize": "small"}
    ax.annotate(claim.bound, (0, place), xytext=(5, 8), **beside)
    ax.plot(
        [claim.low, claim.upper], [place, place], color=color, linewidth=3, alpha=0.45, solid_capstyle="butt",
        label=verdict if verdict not in shown else None,
    )  # fmt: skip
    if claim.value is not None:
        ax.plot([claim.value], [place], marker="o", color=color)
    if claim.verdict is not Verdict.MEASURED:
        ax.plot(
            [claim.limit], [place], marker="|", markersize=12, markeredgewidth=2, color="black", linestyle="none",
            label="limit" if "limit" not in shown else None,
        )  # fmt: skip
    return names


class FrontierDisplay:
    """A plot of many trainings: accuracy against gap, each with its interval.

    Use `from_summaries` or `from_estimator` to make and draw one. All parameters are stored as attributes.

    Parameters
    ----------
    frontier : mapping
        What `frontier_of` returns.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes of the last `plot`.
    figure_ : matplotlib Figure
        The figure that contains them.

    Examples
    --------
    >>> from fairveil import DemographicParity, FairClassifier, FrontierDisplay, Ledger, load_dataset
    >>> people, ledger = load_dataset("adult"), Ledger()
    >>> facts = {"sensitive": "sex", "aware": True, "schema": people.schema, "ledger": ledger}
    >>> fits = [FairClassifier(DemographicParity(limit), **facts).fit(people.X, people.y) for limit in (0.02, 0.05)]
    >>> display = FrontierDisplay.from_summaries([clf.summary() for clf in fits])
    >>> display.ax_.get_ylabel()
    'accuracy'
    """

    ax_: Any
    figure_: Any

    def __init__(self, frontier: Mapping[str, Any]) -> None:
        self.frontier = frontier

    @classmethod
    def from_summaries(cls, summaries: Sequence[Mapping[str, Any]], *, ax: Any = None) -> "FrontierDisplay":
        """Draw trainings on the same people by their summaries.

        Parameters
        ----------
        summaries : sequence of mappings
            What ``FairClassifier.summary()`` returned, or ``summary.json`` holds; at least one.
        ax : matplotlib Axes, optional
            Where to draw; None makes a new figure.

        Returns
        -------
        FrontierDisplay
            The display, drawn.
        """
        return cls(frontier_of(summaries)).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, tolerances: Sequence[float], *, ax: Any = None) -> "FrontierDisplay":
        """Draw the frontier of a classifier whose method derives every tolerance from one release.

        Parameters
        ----------
        estimator : FairClassifier
            A fitted classifier, with a method such as "functional".
        tolerances : sequence of float
            The announced tolerances; those that were not announced are not measured, and not drawn.
        ax : matplotlib Axes, optional
            Where to draw; None makes a new figure.

        Returns
        -------
        FrontierDisplay
            The display, drawn.
        """
        return cls.from_summaries([one.summary() for one in estimator.frontier(tolerances)], ax=ax)

    def plot(self, ax: Any = None) -> "FrontierDisplay":
        """Draw every training whose accuracy and gap are known, one color for each method.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; None makes a new figure.

        Returns
        -------
        FrontierDisplay
            This display.
        """
        ax = _new_axes((7.5, 4.5)) if ax is None else ax
        facts, series = self.frontier, _series(self.frontier["points"])
        variants = list(dict.fromkeys((model, epsilon) for _, model, epsilon in series))
        colors = {name: f"C{method.color}" for name, method in METHODS.items()}
        for (method, model, epsilon), (label, points) in series.items():
            gaps, accuracies = ([measurement(point[name]) for point in points] for name in ("gap", "accuracy"))
            ax.errorbar(
                [gap.value for gap in gaps], [accuracy.value for accuracy in accuracies],
                xerr=_distances(gaps), yerr=_distances(accuracies), label=label, linestyle="none", capsize=3,
                marker=MARKERS[variants.index((model, epsilon)) % len(MARKERS)], color=colors.get(method, "black"),
            )  # fmt: skip
            for point, gap, accuracy in zip(points, gaps, accuracies, strict=True):
                if point["tolerance"] is not None:
                    place: Any = (gap.value, accuracy.value)
                    beside = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": "small"}
                    ax.annotate(compact(point["tolerance"]), place, **beside)
        ax.set(xlabel=gap_name(facts["constraint"], facts.get("against")), ylabel="accuracy")
        if series:
            ax.legend(title=f"{level(facts['confidence'])} intervals,\nlabeled by tolerance")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _series(points: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, float | None], tuple[str, list[Any]]]:
    """Return the known points of each method, model and epsilon with a name that leaves out what all have in common."""
    series: dict[tuple[str, str, float | None], list[Any]] = {}
    for point in points:
        if point["gap"]["value"] is not None and point["accuracy"]["value"] is not None:
            series.setdefault((point["method"], point["model"], point["epsilon"]), []).append(point)
    has_models, has_budgets = (len({key[place] for key in series}) > 1 for place in (1, 2))
    named = {}
    for (method, model, epsilon), found in series.items():
        budget = "not private" if epsilon is None else f"epsilon {compact(epsilon)}"
        parts = [method, *([model] if has_models else []), *([budget] if has_budgets else [])]
        named[method, model, epsilon] = (", ".join(parts), found)
    return named


def _distances(found: Sequence[Measurement]) -> list[list[float]]:
    """Return how far the lower and the upper ends of intervals are from their values."""
    ends = [(one.value or 0.0, *(one.ends or (one.value or 0.0,) * 2)) for one in found]
    return [[value - low for value, low, _ in ends], [high - value for value, _, high in ends]]
