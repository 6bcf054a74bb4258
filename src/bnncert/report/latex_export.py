"""LaTeX tables of a results file, one file for each network and norm.

The layout is that of the comparisons in the literature: a block for the network, a line for each
radius, and for each method the certified instances and the mean time; then, image by image, the
bounds of the instances that the reference method certified.  The tables need the packages booktabs
and multirow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path

from bnncert.model.formats.atomic import make_folder, write_atomically
from bnncert.regions.radii import COUNTED
from bnncert.report.statistics import Panel, counts, mean, panels, reference_series
from bnncert.results.rows import Row
from bnncert.results.store import Recorded

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}"},
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_NORMS = {
    **{"linf": r"\|\cdot\|_\infty", "l2": r"\|\cdot\|_2", "l1": r"\|\cdot\|_1"},
    "l0": r"\|\cdot\|_0",
}


def write_latex(recorded: Recorded, folder: Path) -> list[Path]:
    """Write the tables; return their paths.  Without any table, the folder is not made."""
    written: list[Path] = []
    known = [panel for panel in panels(recorded) if panel.rows("verify")]
    if known:
        make_folder(folder)
    for panel in known:
        name = _file_name(panel, [p.stem for p in written])
        texts = {name: comparison_table(panel)}
        images = image_table(panel)
        if images is not None:
            texts[f"{name}-images"] = images
        for stem, text in texts.items():
            path = folder / f"{stem}.tex"
            write_atomically(path, text)
            written.append(path)
    return written


def escape(text: str) -> str:
    """Return the text with all special characters of LaTeX escaped."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return "".join(_SPECIAL.get(c, c) for c in plain)


def comparison_table(panel: Panel) -> str:
    """Return a line for each radius; a bar separates non-robust from robust instances."""
    lines = counts(panel)
    names = list(dict.fromkeys(one.series for one in lines))
    reference = reference_series(names)
    times = _reference_times(panel, reference)
    finds = {name: any(c.not_robust for c in lines if c.series == name) for name in names}
    radii = list(dict.fromkeys(one.radius for one in lines))
    by_place = {(one.radius, one.series): one for one in lines}
    rows = []
    for k, radius in enumerate(radii):
        cells = [_model_cell(panel, len(radii)) if k == 0 else "", f"${_number(panel, radius)}$"]
        for name in names:
            one = by_place.get((radius, name))
            if one is None:
                cells += ["--", "--"]
                continue
            robust = str(one.robust)
            cells.append(f"{one.not_robust} $|$ {robust}" if finds[name] else robust)
            seconds = f"{one.mean_seconds:.2f}"
            verified = times.get((radius, name))
            cells.append(seconds if verified is None else f"{seconds} ({verified:.2f})")
        rows.append(" & ".join(cells) + r" \\")
    heads, second = _heads(names, "cert.")
    caption = (
        f"{escape(panel.network.name)}, ${_norm(panel)}$: certified instances and mean time. "
        r"A bar separates non-robust and robust instances. Misclassified inputs are left out of "
        f"the times. {_unit(panel)} {escape(panel.settings)}."
    )
    if times:
        caption += f" In parentheses: mean over the instances that {escape(reference or '')} "
        caption += "certified."
    return _table(
        caption,
        "c|c|" + "|".join(["cc"] * len(names)),
        [
            rf"\multirow{{2}}{{*}}{{Model}} & \multirow{{2}}{{*}}{{{_delta(panel)}}} & {heads} \\",
            rf" & & {second} \\",
        ],
        rows,
    )


def image_table(panel: Panel) -> str | None:
    """Return the bounds of the instances that the reference method certified, or None."""
    pairs = panel.rows("verify")
    names = list(dict.fromkeys(name for name, _ in pairs))
    reference = reference_series(names)
    chosen = [r for name, r in pairs if name == reference and r.status == "robust"]
    if reference is None or not chosen:
        return None
    names.sort(key=lambda name: name != reference)
    by_place = {(r.key.instance, r.key.radius, name): r for name, r in pairs}
    rows: list[str] = []
    for radius in sorted({r.key.radius for r in chosen}):
        width = 1 + 2 * len(names)
        if rows:
            rows.append(r"\midrule")
        head = f"{_delta(panel)[:-1]}={_number(panel, radius)}$"
        rows += [rf"\multicolumn{{{width}}}{{c}}{{{head}}} \\", r"\midrule"]
        here = [r for r in chosen if r.key.radius == radius]
        for r in sorted(here, key=lambda r: (r.key.input_index, r.key.input_hash)):
            cells = [str(r.key.input_index)]
            for name in names:
                cells += _bound_cells(by_place.get((r.key.instance, radius, name)))
            rows.append(" & ".join(cells) + r" \\")
    heads, second = _heads(names, "bound")
    caption = (
        f"{escape(panel.network.name)}, ${_norm(panel)}$: instances that {escape(reference)} "
        f"certified, image by image. {_unit(panel)} {escape(panel.settings)}."
    )
    return _table(
        caption,
        "c|" + "|".join(["cc"] * len(names)),
        [rf"\multirow{{2}}{{*}}{{Image index}} & {heads} \\", rf" & {second} \\"],
        rows,
    )


def _reference_times(panel: Panel, reference: str | None) -> dict[tuple[float, str], float]:
    """Return mean seconds over the instances that the reference certified."""
    pairs = panel.rows("verify")
    certified = {
        (r.key.instance, r.key.radius)
        for name, r in pairs
        if name == reference and r.status == "robust"
    }
    seconds: dict[tuple[float, str], list[float]] = {}
    for name, r in pairs:
        if (r.key.instance, r.key.radius) in certified:
            seconds.setdefault((r.key.radius, name), []).append(r.seconds)
    return {place: mean(values) or 0.0 for place, values in seconds.items()}


def _bound_cells(row: Row | None) -> list[str]:
    if row is None:
        return ["--", "--"]
    seconds = f"{row.seconds:.2f}"
    if row.status == "timeout":
        limit = row.seconds if row.key.timeout is None else row.key.timeout
        return ["timeout", f"$>{limit:g}$"]
    if row.status == "not_robust":
        return ["not robust", seconds]
    if row.lower is None:
        return [row.status, seconds]
    # Rounded down, so that the printed number is a lower bound.
    return [str(Decimal(row.lower).quantize(Decimal("0.01"), ROUND_FLOOR)), seconds]


def _model_cell(panel: Panel, radii: int) -> str:
    parts = [escape(panel.network.name)]
    if panel.network.sizes:
        parts.append(f"$[{', '.join(map(str, panel.network.sizes))}]$")
    if panel.network.zero_fraction is not None:
        parts.append(rf"$w_s={100 * panel.network.zero_fraction:.2f}\%$")
    stack = r" \\ ".join(parts)
    return rf"\multirow{{{radii}}}{{*}}{{\shortstack[l]{{{stack}}}}}"


def _heads(names: Sequence[str], word: str) -> tuple[str, str]:
    """Return two lines above the columns: the methods, and `word` and the time under each."""
    heads = [
        rf"\multicolumn{{2}}{{{'c' if name == names[-1] else 'c|'}}}{{{escape(name)}}}"
        for name in names
    ]
    return " & ".join(heads), " & ".join([rf"{word} & $t\:(s)$"] * len(names))


def _norm(panel: Panel) -> str:
    return _NORMS.get(panel.key.norm, escape(panel.key.norm))


def _number(panel: Panel, radius: float) -> str:
    return f"{panel.radius_number(radius):.6g}"


def _delta(panel: Panel) -> str:
    if panel.key.norm in COUNTED:
        return "$r$" if panel.key.norm == "contrast" else "$k$"
    return rf"$\delta_{{{_norm(panel)}}}$" if panel.network.pixel_step else r"$\varepsilon$"


def _unit(panel: Panel) -> str:
    """Return the unit of the radii, and the inputs that they are about."""
    step, inputs = panel.network.pixel_step, escape(panel.inputs)
    if panel.key.norm == "l0":
        return f"At most $k$ inputs change ({escape(panel.norm_name)}, {inputs})."
    if panel.key.norm in COUNTED:
        return f"Sizes of {escape(panel.norm_name)}: {escape(panel.unit)}."
    if not step:
        return f"Radii in the units of the input, {inputs}."
    return rf"Radii in px, $\delta={1 / step:.6g}\,\varepsilon$, {inputs}."


def _table(caption: str, columns: str, head: Sequence[str], rows: Sequence[str]) -> str:
    return "\n".join(
        [
            "% needs the packages booktabs and multirow",
            *(r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"),
            *(rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *head, r"\midrule"),
            *(*rows, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""),
        ]
    )


def _file_name(panel: Panel, taken: Sequence[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{panel.network.name}-{panel.key.norm}").strip("-.")
    name, number = plain, 2
    while name in taken or f"{name}-images" in taken:
        name, number = f"{plain}-{number}", number + 1
    return name
