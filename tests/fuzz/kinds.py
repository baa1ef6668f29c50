"""One function for each kind of input: a seeded generator in, a case for the command line out."""

import gzip
import hashlib
import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fairveil.persistence import FACTS, WEIGHTS, _checksum
from fuzz.driver import CANARIES, Case
from fuzz.mutators import NASTY_TEXTS, damaged, forged, nested
from fuzz.people import BY_PERSON, HEADER, MODELS, SCHEMA, rows, table

Make = Callable[[random.Random, Path], Case]


def _reader(rng: random.Random, data: str) -> tuple[str, ...]:
    """Return a command that reads a table."""
    json_option = ("--json",) if rng.random() < 0.3 else ()
    model = rng.choice(list(MODELS))
    draft = ("schema", "draft", data, "--target", "hired", "--sensitive", "sex", "--out", "drafted.toml")
    commands = [
        ("check", data, "--schema", "schema.toml"),
        ("predict", f"{model}/model", data, "--out", rng.choice(("decided.csv", "decided.parquet"))),
        draft,
        (*draft, "--epsilon", "5", "--ledger", "others.jsonl"),
        ("certify", f"{model}/model", data, "--epsilon", "1", "--ledger", "others.jsonl"),
        ("train", data, "--schema", "schema.toml", *MODELS[model], "--out", "results", "--ledger", "others.jsonl"),
    ]
    weights = (6, 6, 3, 1, 3, 2)
    return rng.choices(commands, weights)[0] + json_option


def csv_table(rng: random.Random, base: Path) -> Case:
    """Return a command on a damaged CSV table."""
    lines = [list(HEADER), *map(list, rows()[: rng.choice((0, 1, 20, len(rows())))])]
    for _ in range(rng.choice((0, 1, 3, 10))):
        cells = rng.choice(lines)
        cells[rng.randrange(len(cells))] = rng.choice(NASTY_TEXTS)
    texts = [",".join(cells) for cells in lines]
    for _ in range(rng.choice((0, 1, 2))):
        place, kind = rng.randrange(len(texts) + 1), rng.randrange(7)
        if kind == 0:
            texts.insert(place, '"zqbroken,7741950273')
        elif kind == 1:
            texts.insert(place, "zqbroken," * rng.choice((2, 50, 3000)))
        elif kind == 2:
            texts[0:1] = []  # no header: the first line is a record
        elif kind == 3:
            texts[:2] = ["".join(texts[:2])]  # the line break after the header is lost
        elif kind == 4 and texts:
            texts[0] = texts[0] + "," + rng.choice(HEADER)
        elif kind == 5:
            texts = [text.replace(",", rng.choice(";\t|")) for text in texts]
        else:
            texts.insert(place, "")
    end = rng.choice(("\n", "\n", "\r\n", "\r"))
    content = (end.join(texts) + rng.choice((end, ""))).encode(rng.choice(("utf-8", "utf-8-sig", "utf-16")), "replace")
    if rng.random() < 0.4:
        content = damaged(rng, content, NASTY_TEXTS)
    words = _reader(rng, "table.csv")
    if rng.random() < 0.1:
        words += ("--delimiter", rng.choice((";", "\t", "", '"', "zz", "\x1b")))
    return Case(words, {"table.csv": content, **_other_schema(rng)})


def packed_table(rng: random.Random, base: Path) -> Case:
    """Return a command on a compressed CSV table in some encoding: whole, damaged, cut short, or absurdly large."""
    encoding = rng.choice(("utf-8", "latin-1", "cp1252", "utf-16", "shift_jis", "big5"))
    area, end = rng.choice(("n\u00f6rd", "\u5317", "north")), rng.choice(("\n", "\r\n"))
    text = table().replace("north", area).replace("\n", end)
    content = text.encode(encoding, "replace")
    if rng.random() < 0.1:
        content += rng.choice((b"\0", b"zqbroken", b"\n", b",")) * 10**7
    kind = rng.choice(("gzip", "gzip", "zstd", "lz4", "zip", "twice", "none"))
    if kind == "gzip":
        content = gzip.compress(content, rng.choice((0, 1, 9)))
    elif kind == "twice":
        content = gzip.compress(content[:9000]) + gzip.compress(content[9000:])
    elif kind == "zip":
        content = b"PK\x03\x04" + content
    elif kind != "none":
        content = pa.compress(content, codec=kind, asbytes=True)
    if rng.random() < 0.5:
        content = damaged(rng, content) if rng.random() < 0.5 else content[: rng.randrange(len(content))]
    words = _reader(rng, "table.csv.gz")
    if rng.random() < 0.6:
        words += ("--encoding", rng.choice((encoding, "latin-1", "utf-7", "rot13", "", "zz\x1b", "idna")))
    return Case(words, {"table.csv.gz": content, **_other_schema(rng)})


def _other_schema(rng: random.Random) -> dict[str, bytes]:
    return {"schema.toml": BY_PERSON.encode()} if rng.random() < 0.2 else {}


def parquet_table(rng: random.Random, base: Path) -> Case:
    """Return a command on a Parquet table with columns of odd types and names, or of damaged bytes."""
    n_rows = rng.choice((0, 1, 30, 300))
    columns = dict(zip(HEADER, zip(*rows()[:n_rows], strict=True) if n_rows else [()] * len(HEADER), strict=True))
    arrays = {name: pa.array(list(cells), pa.string()) for name, cells in columns.items()}
    for name in rng.sample(HEADER, rng.choice((0, 1, 3))):
        arrays[name] = _odd_array(rng, n_rows)
    names = list(arrays)
    if rng.random() < 0.15:
        names[rng.randrange(len(names))] = rng.choice((*HEADER, *NASTY_TEXTS))
    sink = io.BytesIO()
    packed = rng.choice(("snappy", "zstd", "none"))
    pq.write_table(pa.Table.from_arrays(list(arrays.values()), names=names), sink, compression=packed)
    content = sink.getvalue()
    if rng.random() < 0.4:
        content = damaged(rng, content)
    name = rng.choice(("table.parquet", "table.csv"))
    return Case(_reader(rng, name), {name: content, **_other_schema(rng)})


def _odd_array(rng: random.Random, n_rows: int) -> pa.Array:
    """Return a column of some Arrow type, with a canary where the type can hold one."""
    numbers = [rng.choice((None, 0, 1, 7741950273, -(2**60), 2**53 + 1)) for _ in range(n_rows)]
    makers: list[Callable[[], pa.Array]] = [
        lambda: pa.nulls(n_rows),
        lambda: pa.array(numbers, pa.int64()),
        lambda: pa.array([None if one is None else float(one) * 1e300 for one in numbers], pa.float64()),
        lambda: pa.array([None if one is None else one % 2 == 0 for one in numbers], pa.bool_()),
        lambda: pa.array([rng.choice((None, b"\xff\xfe", b"zqcell", b"")) for _ in numbers], pa.binary()),
        lambda: pa.array([b"zqcell\0\0"] * n_rows, pa.binary(8)),
        lambda: pa.array([["zqcell"]] * n_rows, pa.list_(pa.string())),
        lambda: pa.array([{"zqname": 1}] * n_rows, pa.struct([("a", pa.int8())])),
        lambda: pa.array(["zqcell"] * n_rows, pa.string()).dictionary_encode(),
        lambda: pa.array(numbers, pa.int64()).cast(pa.timestamp("ns")),
        lambda: pa.array([1] * n_rows, pa.int32()).cast(pa.date32()),
        lambda: pa.array([None] * n_rows, pa.decimal128(38, 3)),
        lambda: pa.array(["x" * rng.choice((1, 2000)) for _ in numbers], pa.large_string()),
        lambda: pa.array(numbers, pa.duration("s")),
    ]
    return rng.choice(makers)()


def schema_file(rng: random.Random, base: Path) -> Case:
    """Return a command on a damaged or forged schema."""
    text = rng.choice((SCHEMA, BY_PERSON))
    values = [
        *(f'"{one}"' for one in ("", "ignore", "no", "zz\\u001b[31m", "\\u202e", "age", "9" * 5000)),
        "true",
        "nan",
        "-inf",
        "1e400",
        "0",
        "-3",
        "2.5",
        "9" * 30,
        "9" * 5000,
        "1979-05-27",
        "[]",
        "[[]]",
        "{}",
        "[1, 1]",
        "[3, 2]",
        '["no"]',
        nested(5000),
        nested(50),
        "{a = " * 60 + "1" + "}" * 60,
        '["f", "m", "x"]',
        "[-1e308, 1e308]",
        "65535",
        "70000",
    ]
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2, 4))):
        place, kind = rng.randrange(len(lines)), rng.randrange(5)
        key = lines[place].split("=")[0]
        if kind <= 1 and "=" in lines[place]:
            lines[place] = f"{key}= {rng.choice(values)}"
        elif kind == 2:
            del lines[place : place + rng.choice((1, 1, 3))]
        elif kind == 3:
            keys = (
                "bins",
                "encode",
                "cuts",
                "unknown",
                "values",
                "positive",
                "at_cut",
                "sources",
                "id_column",
                "odd",
                "notes",
            )
            lines.insert(place, f"{rng.choice(keys)} = {rng.choice(values)}")
        else:
            lines.insert(
                place, rng.choice(("[columns.zz]", "[a.b.c]", "[[sensitive]]", "[target]", "a.b.c = 1", "= 3", "["))
            )
        if not lines:
            break
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    if rng.random() < 0.25:
        content = damaged(rng, content)
    method = rng.choice(list(MODELS.values()))
    commands = [
        ("explain", "people.csv", "--schema", "odd.toml", *method),
        ("check", "people.csv", "--schema", "odd.toml"),
        ("schema", "approve", "odd.toml", "--yes"),
        ("train", "people.csv", "--schema", "odd.toml", *method, "--out", "results", "--ledger", "others.jsonl"),
    ]
    words = rng.choices(commands, (5, 3, 2, 1))[0]
    return Case(words + (("--json",) if rng.random() < 0.3 else ()), {"odd.toml": content})


def model_folder(rng: random.Random, base: Path) -> Case:
    """Return a command on a model with flipped or cut bytes, or with forged facts and weights that are signed anew."""
    name = rng.choice(list(MODELS))
    facts, weights = ((base / name / "model" / one).read_bytes() for one in (FACTS, WEIGHTS))
    kind = rng.randrange(10)
    if kind == 0:
        facts = damaged(rng, facts)
    elif kind == 1:
        weights = damaged(rng, weights)
    elif kind == 2:
        facts = rng.choice((b"", b"[]", b"1" * 6000, nested(100_000).encode(), b'{"format": 3}', b"\xff", b"null"))
    else:
        facts, weights = _signed(rng, kind, json.loads(facts), weights)
    files = {f"forged/model/{FACTS}": facts, f"forged/model/{WEIGHTS}": weights}
    if (base / name / "key").exists() and rng.random() < 0.9:
        files["forged/key"] = (base / name / "key").read_bytes()
    words = ("predict", "forged/model", "people.csv", "--out", "decided.csv")
    if rng.random() < 0.4:
        words = ("certify", "forged/model", "people.csv", "--epsilon", "1", "--ledger", "others.jsonl")
    return Case(words + (("--json",) if rng.random() < 0.3 else ()), files)


def _signed(rng: random.Random, kind: int, facts: dict, weights: bytes) -> tuple[bytes, bytes]:
    """Return forged facts or weights whose checksums fit."""
    if kind == 3:
        weights = _forged_weights(rng, weights)
        facts["sha256"] = hashlib.sha256(weights).hexdigest()
    elif kind == 4:
        facts["front"] = forged(rng, facts["front"])
    elif kind == 5:
        facts["schema"] = damaged(rng, facts["schema"].encode()).decode("latin-1")
    else:
        for name in rng.sample(list(facts), rng.choice((1, 1, 2))):
            facts[name] = forged(rng, facts[name])
    return json.dumps({**facts, "checksum": _checksum(facts)}).encode(), weights


def _forged_weights(rng: random.Random, weights: bytes) -> bytes:
    """Return sound tensors of other shapes, types and numbers."""
    tensors = dict(load_tensors(weights))
    name = rng.choice(list(tensors))
    array = tensors[name]
    changed = [
        array.astype(np.float64),
        array[:-1],
        np.zeros((2, 3), np.float32),
        np.full_like(array, np.nan),
        array[:0],
        np.full_like(array, np.inf),
        np.zeros(array.shape, np.int64),
        np.append(array.ravel(), array.ravel()),
        np.float32(1).reshape(()),
    ]
    tensors[name] = np.ascontiguousarray(rng.choice(changed))
    if rng.random() < 0.2:
        tensors[rng.choice(("rule.zz", "rule.thresholds", "other"))] = array
    if rng.random() < 0.1:
        del tensors[name]
    return save_tensors(tensors)


def ledger_file(rng: random.Random, base: Path) -> Case:
    """Return a command on a damaged ledger, or on one whose lines were forged and chained anew."""
    content = (base / "ledger.jsonl").read_bytes()
    if rng.random() < 0.4:
        content = damaged(rng, content)
    else:
        lines = ledger_lines(content)
        for _ in range(rng.choice((1, 1, 3))):
            line = rng.choice(lines)
            name = rng.choice(list(line))
            line[name] = forged(rng, line[name])
        content = chained(lines)
        if rng.random() < 0.05:
            content += (nested(100_000) + "\n").encode()
    commands = [
        ("ledger", "show", "odd.jsonl"),
        ("ledger", "budget", "odd.jsonl", "--epsilon", "3"),
        ("explain", "people.csv", "--schema", "schema.toml", *MODELS["plain"], "--ledger", "odd.jsonl"),
        (
            "train",
            "people.csv",
            "--schema",
            "schema.toml",
            *MODELS["plain"],
            "--ledger",
            "odd.jsonl",
            "--out",
            "results",
        ),
    ]
    words = rng.choices(commands, (5, 2, 2, 1))[0]
    return Case(words + (("--json",) if rng.random() < 0.3 else ()), {"odd.jsonl": content})


def chained(lines: list[dict]) -> bytes:
    """Return these lines as a ledger whose hashes fit: each line carries the hash of itself and of the one before."""
    content = chain = '{"fairveil_ledger": 1}\n'
    for line in lines:
        chain = hashlib.sha256(f"{chain}{json.dumps(line, sort_keys=True)}".encode()).hexdigest()[:32]
        content += json.dumps({**line, "chain": chain}, sort_keys=True) + "\n"
    return content.encode()


def ledger_lines(content: bytes) -> list[dict]:
    """Return the lines of a ledger without their hashes."""
    lines = [json.loads(line) for line in content.splitlines()[1:]]
    return [{name: value for name, value in line.items() if name != "chain"} for line in lines]


def rule_text(rng: random.Random, base: Path) -> Case:
    """Return a request for bounds written as rules of random tokens."""
    tokens = [
        "selection_rate",
        "false_negative_rate",
        "accuracy",
        "error_rate",
        "precision",
        "[",
        "]",
        "(",
        ")",
        "sex",
        "=",
        "f",
        "m",
        "not ",
        ",",
        "<=",
        ">=",
        "<",
        "==",
        "+",
        "-",
        "*",
        "0.3",
        "1e999",
        ".5",
        "1e-400",
        "9" * 50,
        "'",
        '"',
        '"f"',
        "yes",
        " ",
        "\\",
        "é",
        "\x1b[31m",
        "\u202e",
        "[sex=f]",
        "[sex=m]",
        "[not sex=f]",
        "(yes)",
        "[sex=zz]",
        "selection_rate[sex=f]",
        " <= 0.3",
        " >= 0.8 * selection_rate[sex=m]",
        "zz",
        "(" * 300,
        "- " * 200,
        "[sex=f, sex=m]",
    ]
    text = "".join(rng.choice(tokens) for _ in range(rng.choice((1, 3, 6, 12, 40))))
    if rng.random() < 0.5:
        whole = "selection_rate[sex=f] >= 0.8 * selection_rate[sex=m]"
        text = damaged(rng, whole.encode()).decode("utf-8", "replace").replace("\0", "")
    words = ["explain", "people.csv", "--schema", "schema.toml", rng.choice(("--aware", "--unaware")), "--rule", text]
    if rng.random() < 0.2:
        words += ["--rule", "selection_rate <= 0.5"]
    return Case(tuple(words) + (("--json",) if rng.random() < 0.3 else ()))


def options(rng: random.Random, base: Path) -> Case:
    """Return a command with odd options: other numbers, places that are no files, names that nobody knows."""
    numbers = (
        "0",
        "-1",
        "1",
        "4",
        "1e-9",
        "1e308",
        "1e400",
        "nan",
        "inf",
        "-inf",
        "x",
        "",
        "0.05",
        "0.9999999",
        "1_0",
        "10" * 12,
    )
    places = (
        "people.csv",
        "nothing.csv",
        "",
        ".",
        "/",
        "schema.toml",
        "ledger.jsonl",
        "plain",
        "plain/model",
        "/dev/null",
        "/dev/zero",
        "people.csv/x",
        "x" * 300,
        "new/deep/place",
        "zz\x1b[31m",
        "\udcff.csv",
        "pipe",
        "aware/model",
        "parity/key",
        "-",
        "decided.csv",
        "decided.parquet",
        "decided.txt",
    )
    names = (
        "hired",
        "sex",
        "age",
        "zz",
        "",
        "who",
        "area,sex",
        "\x1b[31m",
        "demographic_parity",
        "dpsgd",
        "auto",
        "mlp",
        "pfld",
    )
    choices = {"--yes": ("",), "--aware": ("",), "--help": ("",), "--zz": ("zz",), "--rule": ("selection_rate <= 0.3",)}
    choices |= dict.fromkeys(
        ("--epsilon", "--delta", "--tolerance", "--holdout", "--confidence", "--n-public"), numbers
    )
    choices |= dict.fromkeys(("--norm-bound", "--lambda-max", "--epsilons", "--tolerances"), numbers)
    choices |= dict.fromkeys(("--schema", "--ledger", "--out", "--key"), places)
    choices |= dict.fromkeys(("--target", "--sensitive", "--constraint", "--method", "--methods", "--model"), names)
    choices |= dict.fromkeys(
        ("--protects", "--unit", "--against", "--delimiter"), (*names, "person", "attribute", "rest")
    )
    train = (
        "--target --sensitive --epsilon --delta --constraint --tolerance --against --rule --aware --method --model "
        "--protects --schema --n-public --ledger --unit --holdout --confidence --delimiter --out --norm-bound "
        "--lambda-max --help"
    )
    commands = {
        ("explain", "people.csv", "--schema", "schema.toml", *rng.choice(list(MODELS.values()))): train,
        (
            "train",
            "people.csv",
            "--schema",
            "schema.toml",
            *MODELS["plain"],
            "--ledger",
            "o.jsonl",
            "--out",
            "results",
        ): train,
        (
            "frontier",
            "people.csv",
            "--schema",
            "schema.toml",
            "--aware",
            "--out",
            "sweep",
            "--ledger",
            "o.jsonl",
            "--epsilons",
            "1",
        ): "--epsilons --tolerances --methods --out --ledger --schema --n-public --delta --sensitive --constraint",
        ("check", "people.csv", "--schema", "schema.toml"): "--schema --delimiter --help",
        ("predict", "plain/model", "people.csv", "--out", "decided.csv"): "--out --key --delimiter",
        (
            "certify",
            "plain/model",
            "people.csv",
            "--epsilon",
            "1",
            "--ledger",
            "o.jsonl",
        ): "--epsilon --delta --confidence --ledger --key --delimiter",
        (
            "schema",
            "draft",
            "people.csv",
            "--target",
            "hired",
            "--sensitive",
            "sex",
            "--out",
            "drafted.toml",
        ): "--target --sensitive --out --epsilon --delta --ledger --yes --delimiter",
        ("schema", "approve", "schema.toml", "--yes"): "--yes --zz",
        ("ledger", "show", "ledger.jsonl"): "--delta",
        ("ledger", "budget", "ledger.jsonl", "--epsilon", "3"): "--epsilon --delta",
        (): "--help",
        ("ledger",): "--zz",
        ("schema",): "--help",
        ("zz",): "--zz",
    }
    start = rng.choices(list(commands), (6, 3, 1, 3, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1))[0]
    words, own = list(start), commands[start].split()
    for _ in range(rng.choice((1, 1, 2, 3))):
        option = rng.choice(own if rng.random() < 0.95 else list(choices))
        value = rng.choice(choices[option])
        words += [option] if choices[option] == ("",) else [option, value]
    if len(words) > 2 and rng.random() < 0.3:
        words[rng.randrange(1, len(words))] = rng.choice((*places, *names, *numbers))
    if rng.random() < 0.2:
        words.append("--json")
    return Case(tuple(words))


KINDS: dict[str, Make] = {
    "csv": csv_table,
    "packed": packed_table,
    "parquet": parquet_table,
    "schema": schema_file,
    "model": model_folder,
    "ledger": ledger_file,
    "rule": rule_text,
    "options": options,
}
assert all(canary in table() for canary in CANARIES if canary != "zqbroken")
