"""The tables of a results file, and the versions of their layout."""

from __future__ import annotations

import sqlite3

#: The format that a file states.
FORMAT = "bnncert results"

#: The statements that make version 1 of the layout.
_VERSION_1 = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE results (
        key TEXT NOT NULL UNIQUE,
        model_hash TEXT NOT NULL,
        input_index INTEGER NOT NULL,
        input_hash TEXT NOT NULL,
        label INTEGER NOT NULL,
        norm TEXT NOT NULL,
        radius REAL NOT NULL,
        clip TEXT NOT NULL,
        targets TEXT NOT NULL,
        method TEXT NOT NULL,
        timeout REAL,
        ties TEXT NOT NULL,
        sign_zero TEXT NOT NULL,
        seed INTEGER NOT NULL,
        predicted INTEGER NOT NULL,
        status TEXT NOT NULL,
        lower REAL,
        upper REAL,
        seconds REAL NOT NULL,
        stage TEXT NOT NULL,
        per_target TEXT NOT NULL,
        counterexample BLOB,
        counterexample_json TEXT,
        version TEXT NOT NULL,
        finished_at TEXT NOT NULL
    )""",
)

#: Version 2 adds to version 1: the question, certificates, and the networks and inputs of hashes.
_VERSION_2 = (
    "ALTER TABLE results ADD COLUMN question TEXT NOT NULL DEFAULT 'verify'",
    "ALTER TABLE results ADD COLUMN certificate TEXT",
    """CREATE TABLE networks (
        model_hash TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        source TEXT NOT NULL,
        sizes TEXT NOT NULL,
        input_shape TEXT NOT NULL,
        input_lo REAL,
        input_hi REAL,
        pixel_step REAL,
        zero_fraction REAL NOT NULL
    )""",
    """CREATE TABLE inputs (
        input_hash TEXT PRIMARY KEY,
        label INTEGER NOT NULL,
        shape TEXT NOT NULL,
        dtype TEXT NOT NULL,
        point BLOB NOT NULL
    )""",
)

#: Version 3 adds whether labels were given.
_VERSION_3 = ("ALTER TABLE results ADD COLUMN labels TEXT NOT NULL DEFAULT 'unknown'",)

#: Version 4 adds grids, and the largest change of an input in L0 balls.
_VERSION_4 = (
    "ALTER TABLE results ADD COLUMN grid TEXT",
    "ALTER TABLE results ADD COLUMN within REAL",
)

#: Version 5 adds the files of the points, and their scale.
_VERSION_5 = (
    "ALTER TABLE results ADD COLUMN data TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE results ADD COLUMN scale TEXT NOT NULL DEFAULT ''",
)

#: Version 6 adds answers of other kinds: explanations, weight faults and counts.
_VERSION_6 = (
    """CREATE TABLE other_answers (
        key TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        model_hash TEXT NOT NULL,
        input_name TEXT NOT NULL,
        input_hash TEXT NOT NULL,
        label INTEGER NOT NULL,
        region TEXT NOT NULL,
        settings TEXT NOT NULL,
        status TEXT NOT NULL,
        summary TEXT NOT NULL,
        seconds REAL NOT NULL,
        payload TEXT NOT NULL,
        version TEXT NOT NULL,
        finished_at TEXT NOT NULL,
        certificate TEXT,
        labels TEXT NOT NULL
    )""",
)

#: Version 7 adds the value of a shape of change.
_VERSION_7 = ("ALTER TABLE results ADD COLUMN value REAL",)

#: The statements of each version after those of the version before.
_VERSIONS = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5, _VERSION_6, _VERSION_7)

#: The newest version of the layout, and all readable versions, as a file states them.
SCHEMA_VERSION = str(len(_VERSIONS))
KNOWN_VERSIONS = tuple(str(k) for k in range(1, len(_VERSIONS) + 1))


def plain_tables(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the plain tables of a file.

    Tables with computed columns, and views, are left out: reading them may never end or fill the
    memory.
    """
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    columns = "SELECT hidden FROM pragma_table_xinfo(?)"
    return {
        name
        for (name,) in found
        if not any(hidden for (hidden,) in connection.execute(columns, (name,)))
    }


def stated_version(connection: sqlite3.Connection, tables: set[str]) -> str | None:
    """Return the version that a file with these tables states; None if it is another file."""
    if not {"meta", "results"} <= tables:
        return None
    try:
        meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    except sqlite3.OperationalError:
        # A table of that name with other columns belongs to another program.
        return None
    return meta.get("schema_version", "") if meta.get("format") == FORMAT else None


def upgrade(connection: sqlite3.Connection, version: str | None) -> None:
    """Upgrade a file from a known version to the newest one; None means an empty file."""
    for statements in _VERSIONS[int(version or 0) :]:
        for statement in statements:
            connection.execute(statement)
    if version is None:
        stated = [("format", FORMAT), ("schema_version", SCHEMA_VERSION)]
        connection.executemany("INSERT INTO meta VALUES (?, ?)", stated)
    else:
        # Written even if nothing changes: SQLite opens a read-only file without an error, and the
        # error should occur now and not after hours of work.
        connection.execute(
            "UPDATE meta SET value = ? WHERE name = 'schema_version'", (SCHEMA_VERSION,)
        )
