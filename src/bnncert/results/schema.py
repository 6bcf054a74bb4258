"""The tables of a results file, and the version of their layout."""

from __future__ import annotations

import sqlite3

#: What a file states: its format, and the version of its tables.
FORMAT = "bnncert results"
SCHEMA_VERSION = "7"

_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    # One row for each verdict or bound.
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
        finished_at TEXT NOT NULL,
        question TEXT NOT NULL DEFAULT 'verify',
        certificate TEXT,
        labels TEXT NOT NULL DEFAULT 'unknown',
        grid TEXT,
        within REAL,
        data TEXT NOT NULL DEFAULT '',
        scale TEXT NOT NULL DEFAULT '',
        value REAL
    )""",
    # The networks and inputs of the hashes.
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
    # Explanations, weight faults and counts.
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


def create_tables(connection: sqlite3.Connection) -> None:
    """Make a results file of an empty one."""
    for statement in _TABLES:
        connection.execute(statement)
    stated = [("format", FORMAT), ("schema_version", SCHEMA_VERSION)]
    connection.executemany("INSERT INTO meta VALUES (?, ?)", stated)


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
