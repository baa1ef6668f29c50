"""Searches that compare fits on private rows: the ledger records them, because no accountant prices them."""

import warnings
from typing import Any

from sklearn.base import BaseEstimator, ClassifierMixin, _clone_parametrized

from fairveil.accounting.events import UnpricedChoice
from fairveil.errors import UnpricedSearchWarning
from fairveil.privacy.ledger import Ledger
from fairveil.report.privacy_text import UNPRICED_SEARCH


class SearchAwareEstimator(ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier that knows when it is a candidate of a search, so that the ledger can record it."""

    _is_clone = False
    _is_candidate = False

    def set_params(self, **params: Any) -> Any:
        """Set `params` by name. On a clone this is what a search does, and the next fit records it on the ledger."""
        super().set_params(**params)
        if params and self._is_clone:
            self._is_candidate = True
        return self

    def _record_search(self, ledger: Ledger, depth: int) -> None:
        """Record a candidate of a search; the first one, after which no total can be stated, is announced before."""
        if not any(isinstance(charge.event, UnpricedChoice) for charge in ledger.state().charges):
            warnings.warn(UNPRICED_SEARCH, UnpricedSearchWarning, stacklevel=depth + 1)
        ledger.debit_unpriced("a search that compares fits on private rows outside the accounting")

    def __sklearn_clone__(self) -> Any:
        clone = _clone_parametrized(self)
        clone._is_clone = True
        return clone

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
