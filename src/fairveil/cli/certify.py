"""`fairveil certify`: which bounds a saved model keeps on other people."""

from pathlib import Path

from fairveil.accounting.composition import NeighboringRelation, epsilon_of
from fairveil.cli._files import choose_ledger, source_of
from fairveil.cli._models import open_model
from fairveil.cli._terminal import progress_unless, say
from fairveil.errors import BadStructureError
from fairveil.persistence import model_digest
from fairveil.privacy.ledger import Ledger
from fairveil.report.formatting import finite
from fairveil.report.privacy_text import caution_lines
from fairveil.report.text import certificate_text
from fairveil.training.run import make_counting_plan


def certify(
    model: Path,
    data: str,
    epsilon: float,
    delta: float,
    confidence: float,
    ledger: Path | None,
    key: Path | None,
    delimiter: str | None,
    encoding: str | None,
    engine: str,
    cache: Path | None,
    as_json: bool,
) -> None:
    """Certify a saved model on people who took no part in training."""
    clf, source, out = open_model(model, key), source_of(data), model.resolve().parent
    digest = model_digest(model)
    path, cautions = choose_ledger(source, ledger, out)
    debited = Ledger(path)
    for place in {path, source.ledger(None, out)}:
        if any(entry.purpose.startswith("fit of ") for entry in Ledger(place).entries):
            raise BadStructureError(
                f"Expected people who took no part in training, got {source.name}, whose ledger shows a fit; "
                "certify on rows that were kept apart, with a ledger of their own."
            )
    clf.delta = delta
    certificate = clf.certify_file(
        source.file(),
        epsilon,
        delimiter=delimiter,
        encoding=encoding,
        engine=engine,
        cache=cache,
        ledger=debited,
        confidence=confidence,
        reading=progress_unless(as_json, "reading"),
    )
    inputs = clf.estimator_.inputs_
    plan = make_counting_plan(epsilon, delta, inputs.task.unit)
    charges = plan.charges()
    facts = certificate.to_dict() | {
        "epsilon": finite(epsilon),
        "epsilon_spent": finite(epsilon_of(charges, delta)),
        "epsilon_replace_one": finite(epsilon_of(charges, delta, NeighboringRelation.REPLACE_ONE)),
        "epsilon_spent_total": finite(debited.epsilon(delta)),
        "delta": delta,
        "model": str(model),
        "model_digest": digest,
        "data": source.name,
        "plan": plan.to_list(),
        "aware": clf.aware,
        "sensitive": list(clf.request().sensitive),
        "protects": clf.protects,
        "unit": "record" if inputs.schema.id_column is None else "person",
    }
    text = "\n".join([certificate_text(facts, path), *caution_lines(cautions)])
    say(as_json, facts | {"cautions": cautions}, text, is_paid=True)
