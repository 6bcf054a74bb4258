"""Random changes of a file: of its bytes, of its tokens, and of what its containers hold.

Every change depends on the generator alone, so a seed names a broken file.
"""

from __future__ import annotations

import gzip
import io
import re
import sqlite3
import struct
import tempfile
import zipfile
import zlib
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import onnx

#: Numbers at which readers change their minds.
EDGES = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**63)

_WORDS = r"""
0 1 -1 2 -0 1e999 -1e-999 NaN Infinity 0x1p5 1e30 1e308 4294967296 2147483648 1.5.2 . -
[] {} [[]] null true false "" "\ud800" ' " \ ( ) [ ] { } , : &a *a !!int !!python/object:os.system
| > % é 😀 # ; @ ` X_0 Y_0 X_999999999 Y_7 and or not <= >= = assert declare-const
X[0,0] Y[9] == != + * / Real float32 int8 <2.0> W0 b0 W1
sparse linf l2 auto verify bound 1px weight linear sign conv2d
"""

#: What a token is replaced by.
TOKENS = (
    *_WORDS.split(),
    *("9" * 30, "9" * 500, "9" * 5000, "-" + "7" * 25, "- ", "? "),
    *("\n", "\t", "\0", "\x1b", "\u2028", " "),
    *("(" * 2000, "[" * 3000, "{" * 3000, '{"a":' * 3000, "- " * 3000, "a" * 3000),
)

_TOKEN = re.compile(rb'[A-Za-z_]+|[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?|"[^"\n]*"|\s+|[^\sA-Za-z_0-9]')

_OPERATORS = """
Add Sub Mul Div MatMul Gemm Sign Relu Where Reshape Transpose
Flatten Identity Conv MaxPool AveragePool BatchNormalization Cast Clip
Greater Less Neg Squeeze Unsqueeze Pad Softmax ArgMax Shape Slice
Concat Gather Expand Constant ConstantOfShape Range Tile ReduceSum Max
"""


def change_bytes(random: Random, content: bytes, other: bytes) -> bytes:
    """Change some bytes anywhere; `other` is a file of the same format to splice with."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        size = len(data)
        at = random.randrange(size + 1)
        # The beginnings of files have most to say.
        if random.random() < 0.3:
            at = min(at, random.randrange(64))
        length = random.choice((1, 1, 2, 4, 8, 16, 64, 300))
        kind = random.randrange(9)
        if kind <= 1 and at < size:
            data[at] ^= 1 << random.randrange(8)
        elif kind == 2:
            data[at : at + length] = random.randbytes(min(length, size - at))
        elif kind == 3:
            width = random.choice((1, 2, 4, 8))
            number = random.choice(EDGES) % 256**width
            order: Any = random.choice(("little", "big"))
            data[at : at + width] = number.to_bytes(width, order)
        elif kind == 4:
            del data[at:]
        elif kind == 5:
            data[at:at] = random.randbytes(length)
        elif kind == 6:
            del data[at : at + length]
        elif kind == 7:
            data[at:at] = data[at : at + length] * random.choice((1, 2, 50))
        else:
            start = random.randrange(len(other) + 1)
            data[at : at + length] = other[start : start + random.choice((length, len(other)))]
    return bytes(data)


def change_tokens(random: Random, content: bytes) -> bytes:
    """Change words, numbers and signs of a text."""
    tokens = _TOKEN.findall(content)
    if not tokens:
        return content
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(tokens))
        kind = random.randrange(7)
        if kind == 0:
            del tokens[at : at + random.choice((1, 1, 2, 5))]
        elif kind <= 3:
            tokens[at] = random.choice(TOKENS).encode("utf-8", "surrogatepass")
        elif kind == 4:
            tokens[at] = random.choice(tokens)
        elif kind == 5:
            tokens[at] = tokens[at] * random.choice((2, 3, 1500))
        else:
            start = random.randrange(len(tokens))
            tokens[at:at] = tokens[start : start + random.choice((1, 3, 20))]
        if not tokens:
            break
    return b"".join(tokens)


def change(random: Random, kind: str, content: bytes, other: bytes) -> bytes:
    """Return a broken version of a file; `kind` names how its inside is reached."""
    if random.random() < 0.25:
        return change_bytes(random, content, other)
    inside = _INSIDES.get(kind)
    return (
        change_bytes(random, content, other) if inside is None else inside(random, content, other)
    )


def _text(random: Random, content: bytes, other: bytes) -> bytes:
    return change_tokens(random, content)


def _either(random: Random, content: bytes, other: bytes) -> bytes:
    """Change tokens of what looks like text, else bytes."""
    if random.random() < 0.7 and content[:1] in (b"{", b"[", b"(", b";"):
        return change_tokens(random, content)
    return change_bytes(random, content, other)


def _gzip(random: Random, content: bytes, other: bytes) -> bytes:
    inner = _either(random, gzip.decompress(content), gzip.decompress(other))
    return gzip.compress(inner, 1, mtime=0)


def _zip(random: Random, content: bytes, other: bytes) -> bytes:
    """Change one member, and write the archive with the checksums that belong to it."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice(list(members))
    kind = random.randrange(12)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[random.choice(list(members))] = members[name]
    elif kind == 2:
        members[
            random.choice(("W2.npy", "W0_shape.npy", "x", "b0", "../a", "é.npy", "a\nb.npy"))
        ] = members[name]
    elif kind <= 6 and members[name].startswith(b"\x93NUMPY"):
        members[name] = _array_header(random, members[name])
    else:
        members[name] = _either(random, members[name], random.choice(list(members.values())))
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w", random.choice((0, zipfile.ZIP_DEFLATED))) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return changed.getvalue()


def _array_header(random: Random, content: bytes) -> bytes:
    """Change type, order or shape of an .npy file, and keep its header well formed."""
    length = struct.unpack("<H", content[8:10])[0]
    header, body = content[10 : 10 + length], content[10 + length :]
    kind = random.randrange(3)
    if kind == 0:
        types = (
            b"<f4",
            b"<i8",
            b"|u1",
            b">f8",
            b"|O",
            b"<U4",
            b"|S0",
            b"<c16",
            b"|b1",
            b"<f2",
            b"|V8",
        )
        header = re.sub(rb"'descr': '[^']*'", b"'descr': '" + random.choice(types) + b"'", header)
    elif kind == 1:
        sizes = [str(random.choice((*EDGES[:7], -1, 10**6, 10**12, 2**62))) for _ in range(3)]
        shape = "(" + "".join(f"{size}, " for size in sizes[: random.randrange(4)]) + ")"
        header = re.sub(rb"'shape': \([^)]*\)", b"'shape': " + shape.encode(), header)
    else:
        header = change_tokens(random, header)[:60_000]
    return content[:8] + struct.pack("<H", len(header)) + header + body


def _safetensors(random: Random, content: bytes, other: bytes) -> bytes:
    length = int.from_bytes(content[:8], "little")
    header = change_tokens(random, content[8 : 8 + length])
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def _png(random: Random, content: bytes, other: bytes) -> bytes:
    """Change one chunk, and write it with its checksum."""
    chunks = []
    at = 8
    while at + 12 <= len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + size]))
        at += 12 + size
    number = random.randrange(len(chunks))
    kind, data = chunks[number]
    chunks[number] = kind, change_bytes(random, data, data)
    if random.random() < 0.2:
        chunks.insert(number, random.choice(chunks))
    parts = [content[:8]]
    for kind, data in chunks:
        parts += [struct.pack(">I", len(data)), kind, data]
        parts.append(struct.pack(">I", zlib.crc32(kind + data)))
    return b"".join(parts)


def _onnx(random: Random, content: bytes, other: bytes) -> bytes:
    """Change nodes, attributes and tensors of a model."""
    model = onnx.ModelProto.FromString(content)
    graph = model.graph
    names = [name for node in graph.node for name in (*node.input, *node.output)]
    for _ in range(random.choice((1, 1, 2, 4))):
        kind = random.randrange(9)
        node = random.choice(graph.node) if graph.node else graph.node.add()
        if kind == 0:
            node.op_type = random.choice(_OPERATORS.split())
        elif kind == 1 and node.input:
            node.input[random.randrange(len(node.input))] = random.choice([*names, "", "none"])
        elif kind == 2:
            del node.input[random.randrange(len(node.input) + 1) :]
        elif kind == 3 and node.attribute:
            _attribute(random, random.choice(node.attribute))
        elif kind <= 6 and graph.initializer:
            _tensor(random, random.choice(graph.initializer))
        elif kind == 7:
            _attribute(
                random, node.attribute.add(name=random.choice(("axis", "perm", "to", "alpha")))
            )
        elif graph.input:
            for size in graph.input[0].type.tensor_type.shape.dim:
                size.dim_value = random.choice((*EDGES[:-1], -1))
    return bytes(model.SerializeToString())


def _attribute(random: Random, attribute: Any) -> None:
    kinds = onnx.AttributeProto
    attribute.type = random.choice((kinds.INT, kinds.INTS, kinds.FLOAT, kinds.STRING, kinds.TENSOR))
    attribute.i = random.choice((*EDGES[:-1], -1, -5))
    attribute.f = random.choice((0.0, 1e-30, 1e30, float("inf"), float("nan"), 2.0))
    attribute.s = random.choice((b"", b"SAME_UPPER", b"\xff\xfe"))
    attribute.ints.extend(random.choice((*EDGES[:-1], -1)) for _ in range(random.randrange(4)))


def _tensor(random: Random, tensor: Any) -> None:
    kind = random.randrange(4)
    if kind == 0:
        tensor.data_type = random.randrange(25)
    elif kind == 1 and tensor.dims:
        tensor.dims[random.randrange(len(tensor.dims))] = random.choice((*EDGES[:-1], -1))
    elif kind == 2:
        tensor.raw_data = change_bytes(random, tensor.raw_data, b"\0\0\x80\x7f")
    else:
        del tensor.dims[:]
        tensor.dims.extend(random.choice((0, 1, 2, 3, 4)) for _ in range(random.randrange(4)))


#: What a cell of a table is replaced by.
_CELLS: tuple[Any, ...] = (
    *(None, 0, -1, 2**62, 10**400, 1e999, float("nan"), "", "x", b"", b"\xff\xfe\0", "\0"),
    *("[1]", "[1e400]", "[" * 5000, "{}", "[{}]", '[{"target": [], "lower": 1e999}]', '"\\ud800"'),
    *('[{"seconds": "x", "stage": {}, "details": 1}]', '{"predicted": {}, "replayed_in": [{}]}'),
    *("[" + "9" * 400 + "]", '[{"lower": ' + "9" * 400 + "}]", "nan,inf", "1,2,3", "<script>"),
    *("misclassified", "bound", "../../x", "/etc/passwd", "file://x", "[true]", "[0, 1]", "<f4"),
    *("<f8", "a\nb", "é\u2028"),
)


def _sqlite(random: Random, content: bytes, other: bytes) -> bytes:
    """Change cells, the layout, or bytes behind the header."""
    if random.random() < 0.3:
        return content[:100] + change_bytes(random, content[100:], other)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "changed.sqlite"
        path.write_bytes(content)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            for _ in range(random.choice((1, 1, 2, 3))):
                table = random.choice(("results", "results", "networks", "inputs", "meta"))
                _change_table(random, connection, table)
        return path.read_bytes()


def _change_table(random: Random, connection: Any, table: str) -> None:
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    if not columns:
        return
    name = random.choice(columns)
    cell = random.choice(_CELLS)
    kind = random.randrange(10)
    try:
        if kind == 0:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
        elif kind == 1:
            connection.execute(f"ALTER TABLE {table} RENAME TO other")
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM other")
        elif kind == 2:
            connection.execute(f"UPDATE {table} SET {name} = CAST(x'ff41fe' AS TEXT)")
        elif kind == 3:
            connection.execute(f"DELETE FROM {table}")
        else:
            value = str(cell) if isinstance(cell, int) and abs(cell) >= 2**63 else cell
            connection.execute(f"UPDATE {table} SET {name} = ?", (value,))
    except sqlite3.Error:
        # A constraint forbids this change; the others remain.
        return


_INSIDES = {
    "gzip": _gzip,
    "npy": lambda random, content, other: _array_header(random, content),
    "onnx": _onnx,
    "png": _png,
    "safetensors": _safetensors,
    "sqlite": _sqlite,
    "text": _text,
    "zip": _zip,
}
