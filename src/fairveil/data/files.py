"""Encodings and delimiters that a text table may have: public facts, kept in the table `[file]` of a schema."""

import codecs
from typing import IO

from fairveil.errors import InvalidParameterError

DELIMITERS = ";\t|,"
"""What a draft takes for delimiters, if the first line has them."""

NAMED_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}

UTF8 = "utf-8"
ENCODINGS = frozenset(
    {UTF8, "ascii", "iso8859-1", "cp437", "cp850", "cp852", "mac-roman", "koi8-r", "koi8-u"}
    | {f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16)}
    | {f"cp125{part}" for part in range(9)}
    | {"shift_jis", "cp932", "euc_jp", "euc_kr", "cp949", "gb2312", "gbk", "gb18030", "big5"}
)
"""Encodings by Python's names in which a line break is one byte, so that bytes of a record never touch another one."""

BLOCK_BYTES = 2**20


def checked_encoding(name: str) -> str:
    """Return Python's name of an encoding that text tables may have.

    Examples
    --------
    >>> checked_encoding("latin-1"), checked_encoding("UTF8"), checked_encoding("windows-1252")
    ('iso8859-1', 'utf-8', 'cp1252')
    """
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        known = ""
    known = UTF8 if known == "utf-8-sig" else known
    if known not in ENCODINGS:
        raise InvalidParameterError(
            f'Expected an encoding in which a line break is one byte, such as "utf-8", "latin-1" or "cp1252", got '
            f"{name!r}; convert the file to UTF-8."
        )
    return known


def checked_delimiter(name: str) -> str:
    r"""Return the character that a delimiter stands for; tab, \t, comma, semicolon, pipe and space are names.

    Examples
    --------
    >>> checked_delimiter("tab"), checked_delimiter(";")
    ('\t', ';')
    """
    character = NAMED_DELIMITERS.get(name, name)
    if len(character) != 1 or character in '"\r\n':
        raise InvalidParameterError(f"Expected delimiter to be one character other than a quote, got {name!r}.")
    return character


def is_utf8(file: IO[bytes]) -> bool:
    """Say whether all bytes of a text table are UTF-8: private, because it depends on the rows."""
    decoder = codecs.getincrementaldecoder(UTF8)()
    try:
        while block := file.read(BLOCK_BYTES):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
