// The dialog with the details of one row; its address ends in #answer-N, the number of the row.

const dialog = byId("detail");
const FRAGMENT = /^#answer-(\d+)$/;

async function open(at) {
  await unpackDetails();
  const row = shown[at], entry = details[row];
  reveal(at);
  byId("detail-title").textContent = `Image ${value("image", row)}: ${cell("status", row)}`;
  byId("detail-title").className = `status ${value("status", row)}`;
  byId("detail-place").textContent = `${at + 1} of ${shown.length}`;
  byId("detail-before").disabled = at === 0;
  byId("detail-next").disabled = at === shown.length - 1;
  const parts = entry ? [...points(entry, row), ...why(entry)] : [];
  byId("detail-body").replaceChildren(...parts, facts(entry, row), ...(entry ? answers(entry) : []), ...again(row));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  // The address changes without a new entry in the history: Back leaves the page.
  history.replaceState(null, "", `#answer-${value("row", row)}`);
}

function step(by) {
  const at = active + by;
  if (at >= 0 && at < shown.length) open(at);
}

// Open the row that the address names; filters that exclude it are cleared.
async function openFragment() {
  const found = FRAGMENT.exec(location.hash);
  if (!found) return;
  const row = table.row.indexOf(Number(found[1]));
  if (row < 0) return;
  if (!shown.includes(row)) {
    byId("filters").reset();
    update();
  }
  await open(shown.indexOf(row));
}

function closed() {
  history.replaceState(null, "", location.pathname + location.search);
  byId("scroll").scrollIntoView({ block: "nearest" });
  focusActive();
}

// --- the parts of the dialog -------------------------------------------------------------------

function why(entry) {
  if (!entry.why) return [];
  const list = make("ul", {}, ...entry.why.map((text) => make("li", {}, text)));
  return [make("div", { class: "why" }, make("h3", {}, "Why undecided"), list)];
}

function facts(entry, row) {
  const list = make("dl", { class: "facts" });
  const add = (name, ...what) => list.append(make("dt", {}, name), make("dd", {}, ...what));
  add("network", value("network", row));
  const units = value("shown", row).endsWith("px") ? ` (${Number(value("radius", row).toPrecision(6))} in input units)` : "";
  add("region", `${value("norm", row)} ball of radius ${value("shown", row)}${units}, ${value("inputs", row)}`);
  add("class", `label ${value("label", row)}, predicted ${value("predicted", row)}`);
  add("method", `${value("method", row)} (${value("question", row)})`);
  add("decided by", value("stage", row) || "nothing yet");
  add("margin", `lower bound ${number(value("lower", row))}, upper bound ${number(value("upper", row))}`);
  add("time", `${value("seconds", row)} s, finished ${value("finished", row)}`);
  add("settings", value("settings", row));
  if (!entry) {
    add("more", "Pictures and margins of this row are not in the page.");
    return list;
  }
  if (entry.found) {
    const f = entry.found, near = f.near ? "; the exact point is rational, its picture is near it" : "";
    const where = f.replayed.join(", ") || "not recorded";
    add("counterexample", `for ${f.target}, margin ${number(f.value)}, replayed: ${where}${near}${f.tie && `; ${f.tie}`}`);
  }
  if (entry.certificate) {
    const c = entry.certificate;
    add("certificate", c.there ? make("a", { href: c.href }, c.name) : `${c.name} (was not there when the page was made)`);
  }
  return list;
}

function points(entry, row) {
  if (entry.numbers) return [numbers(entry.numbers)];
  if (!entry.pictures) return [];
  const known = entry.found && entry.found.predicted !== null && entry.found.predicted !== undefined;
  const tie = known && entry.found.tie ? ", a tie" : "";
  const found = known ? `, classified as ${entry.found.predicted}${tie}` : "";
  const change = entry.change || {};
  const steps = change.steps ? ` = ${change.steps} px` : "";
  const colours = change.colour ? "grey no change" : "blue less, orange more";
  const most = change.largest === undefined ? "" : `: ${change.values} values, at most ${change.largest}${steps}; ${colours}`;
  const captions = [`input, label ${value("label", row)}`, `counterexample${found}`, `difference${most}`];
  const figures = entry.pictures.map((k, at) =>
    k === null ? null : make("figure", {}, picture(k, captions[at]), make("figcaption", {}, captions[at])));
  return [make("div", { class: "pictures" }, ...figures)];
}

function numbers([before, after]) {
  const text = (v) => (v === null || v === undefined ? "–" : Number(v.toPrecision(8)));
  const rows = (before || after).map((_, k) => {
    const values = [before && before[k], after && after[k], before && after && after[k] - before[k]];
    return make("tr", {}, make("th", { scope: "row" }, k), ...values.map((v) => make("td", { class: "n" }, text(v))));
  });
  const titles = ["value", "input", "counterexample", "difference"];
  const head = make("tr", {}, ...titles.map((t) => make("th", { scope: "col" }, t)));
  return make("div", { class: "wide" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

function answers(entry) {
  const out = [];
  if (entry.targets.length) {
    const ends = entry.targets.flatMap((t) => [t[2], t[3]]).filter((v) => v !== null);
    const low = Math.min(0, ...ends), high = Math.max(0, ...ends, low + 1e-9);
    const x = (v) => (100 * (v - low)) / (high - low);
    const rows = entry.targets.map(([name, status, lower, upper, seconds, stage, note]) => make("tr", { class: status },
      make("th", { scope: "row" }, name), make("td", { class: "status " + status }, word(status)),
      make("td", { class: "n" }, number(lower)), make("td", { class: "n" }, number(upper)), track(x, lower, upper),
      make("td", { class: "n s" }, seconds.toFixed(2)), make("td", { class: "stage" }, stage || note)));
    const heads = [["class", ""], ["answer", ""], ["lower", "n"], ["upper", "n"], ["margin", "track"], ["s", "n s"], ["stage", "stage"]];
    const head = make("tr", {}, ...heads.map(([text, style]) => make("th", { scope: "col", class: style || null }, text)));
    const margins = make("table", { class: "margins" }, make("thead", {}, head), make("tbody", {}, ...rows));
    out.push(make("h3", {}, "Margins over the rivals"), make("div", { class: "wide" }, margins));
  }
  if (entry.stages.length) {
    const items = entry.stages.map(([stage, seconds, classes]) =>
      make("li", {}, `${stage}: ${seconds} s, ${classes} class${classes === 1 ? "" : "es"}`));
    out.push(make("h3", {}, "Time by stage"), make("ul", {}, ...items));
  }
  return out;
}

// What is certain of the minimum: between both bounds, or from zero to the only one.
function track(x, lower, upper) {
  const svg = drawn("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (lower !== null || upper !== null) {
    const from = x(lower !== null ? (upper !== null ? lower : Math.min(0, lower)) : 0);
    const to = x(upper !== null ? (lower !== null ? upper : Math.max(0, upper)) : Math.max(0, lower));
    const width = Math.max(0.8, Math.abs(to - from));
    svg.append(drawn("rect", { class: "span", x: Math.min(from, to), width, y: 2, height: 8 }));
  }
  svg.append(drawn("path", { class: "origin", d: `M${x(0)},0V12`, "vector-effect": "non-scaling-stroke" }));
  return make("td", { class: "track" }, svg);
}

// The command that asks the same question again, and the address of this row.
function again(row) {
  const [before, after] = value("command", row);
  const text = `${before}${value("image", row)} --label ${value("label", row)}${after}`;
  const code = make("code", { id: "command", tabindex: "0" }, text);
  const out = [make("h3", {}, "Reproduce this answer"), make("p", { class: "command" }, code, copier("Copy the command", () => text))];
  if (/ (MODEL|POINTS)( |$)/.test(before)) {
    out.push(make("p", { class: "hint" }, "MODEL and POINTS stand for files that the results file does not name."));
  }
  const link = make("a", { id: "link", href: `#answer-${value("row", row)}` }, "Link to this answer");
  out.push(make("p", {}, link, " ", copier("Copy the link", () => link.href)));
  return out;
}

// A button that copies a text; browsers without a clipboard do not show it.
function copier(title, text) {
  if (!navigator.clipboard) return null;
  const button = make("button", { type: "button", title }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}

function startDetails() {
  byId("detail-close").addEventListener("click", () => dialog.close());
  byId("detail-before").addEventListener("click", () => step(-1));
  byId("detail-next").addEventListener("click", () => step(1));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", closed);
  dialog.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) step(by);
  });
  addEventListener("hashchange", openFragment);
}
