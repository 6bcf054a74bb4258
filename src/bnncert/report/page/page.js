"use strict";
// The table of answers and the details of one.  Text from the file only ever becomes text nodes.
(() => {
  const ROW = 30; // pixels, as in page.css
  const SPARE = 12; // rows drawn above and below what is visible
  const WORDS = { not_robust: "not robust", not_tried: "not tried" };
  const COLUMNS = [
    ["image", "image", true], ["label", "label", true], ["network", "network"], ["norm", "norm"],
    ["radius", "radius", true], ["inputs", "inputs"], ["method", "method"], ["question", "question"], ["status", "answer"],
    ["lower", "lower", true], ["upper", "upper", true], ["seconds", "seconds", true], ["stage", "decided by"],
  ];
  const FILTERS = ["network", "norm", "shown", "inputs", "method", "question", "status"];
  const TITLES = { shown: "radius", status: "answer" };
  const byId = (id) => document.getElementById(id);
  const scroll = byId("scroll"), body = byId("rows").tBodies[0], count = byId("count"), dialog = byId("detail");
  let table, details, pictures, shown = [], sort = { name: null, down: false }, active = 0;
  const pad = () => make("tr", { class: "pad", "aria-hidden": "true" }, make("td", { colspan: COLUMNS.length }));
  const above = pad(), below = pad(); // as high as the rows that are not drawn

  function make(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((c) => c !== null && c !== undefined).map((c) => (c instanceof Node ? c : String(c))));
    return node;
  }

  async function unpack(id) {
    const text = byId(id).textContent;
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  const column = (name) => (table[name].names ? table[name].codes : table[name]);
  const value = (name, row) => (table[name].names ? table[name].names[table[name].codes[row]] : table[name][row]);
  const number = (v) => (v === null || v === undefined ? "–" : String(v));

  function cell(name, row) {
    const v = value(name, row);
    if (name === "status") return WORDS[v] || v;
    if (name === "radius") return value("shown", row);
    if (name === "seconds") return v.toFixed(2);
    return number(v);
  }

  // --- filter and sort ------------------------------------------------------------------------

  function compare(a, b) {
    const aNone = a === null || a === "", bNone = b === null || b === "";
    if (aNone || bNone) return aNone - bNone;
    return typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : a === b ? 0 : 1;
  }

  function wanted() {
    const tests = [];
    for (const name of FILTERS) {
      const choice = byId("f-" + name);
      if (choice && choice.value !== "") tests.push([column(name), Number(choice.value)]);
    }
    const image = byId("f-image").value.trim();
    if (image !== "") tests.push([table.image, Number(image)]);
    return tests;
  }

  function update() {
    const tests = wanted(), total = table.image.length;
    shown = [];
    for (let row = 0; row < total; row++) {
      if (tests.every(([codes, code]) => codes[row] === code)) shown.push(row);
    }
    if (sort.name) {
      const data = table[sort.name], sign = sort.down ? -1 : 1;
      let rank = data;
      if (data.names) {
        const order = data.names.map((_, k) => k).sort((a, b) => compare(data.names[a], data.names[b]));
        const place = new Array(order.length);
        order.forEach((k, at) => { place[k] = at; });
        rank = data.codes.map((k) => (data.names[k] === "" ? null : place[k]));
      }
      // Rows without a value stay at the end in both directions.
      shown.sort((a, b) => {
        const x = rank[a], y = rank[b];
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return sign * (x - y) || a - b;
      });
    }
    active = 0;
    count.textContent = shown.length === total ? `${total} answers` : `${shown.length} of ${total} answers`;
    for (const head of byId("rows").tHead.rows[0].cells) {
      const mine = head.dataset.name === sort.name;
      head.setAttribute("aria-sort", mine ? (sort.down ? "descending" : "ascending") : "none");
      head.querySelector(".arrow").textContent = mine ? (sort.down ? " ▼" : " ▲") : "";
    }
    scroll.scrollTop = 0;
    body.replaceChildren(above, below);
    draw();
  }

  // --- the visible part of the table ----------------------------------------------------------

  const columns = () => COLUMNS.filter(([name]) => name !== "question" || table.question.names.length > 1);

  function draw() {
    const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - SPARE);
    const last = Math.min(shown.length, Math.ceil((scroll.scrollTop + scroll.clientHeight) / ROW) + SPARE);
    // A row that stays visible stays the same element: it may have the focus or be under a finger.
    for (const row of body.querySelectorAll("tr.row")) {
      if (row.dataset.at < first || row.dataset.at >= last) row.remove();
    }
    let next = above.nextSibling;
    for (let at = first; at < last; at++) {
      if (next !== below && Number(next.dataset.at) === at) next = next.nextSibling;
      else body.insertBefore(line(at), next);
    }
    above.style.height = `${first * ROW}px`;
    below.style.height = `${(shown.length - last) * ROW}px`;
  }

  function line(at) {
    const row = shown[at];
    const cells = columns().map(([name, , right]) => {
      if (name === "image") {
        const label = `Details of image ${value("image", row)}, ${value("method", row)}, radius ${cell("radius", row)}, ${value("inputs", row)}: ${cell("status", row)}`;
        return make("td", { class: "n c-image" }, make("button", { type: "button", tabindex: at === active ? "0" : "-1", "aria-label": label, "aria-haspopup": "dialog" }, value("image", row)));
      }
      const text = cell(name, row);
      const extra = name === "status" ? ` status ${value("status", row)}` : "";
      return make("td", { class: `c-${name}${right ? " n" : ""}${extra}`, title: name === "network" || name === "stage" ? text : null }, text);
    });
    return make("tr", { class: at % 2 ? "row odd" : "row", "data-at": at, "aria-rowindex": at + 2 }, ...cells);
  }

  function focusActive() {
    for (const button of body.querySelectorAll("button")) {
      const mine = Number(button.closest("tr").dataset.at) === active;
      button.tabIndex = mine ? 0 : -1;
      if (mine) button.focus({ preventScroll: true });
    }
  }

  function moveTo(at) {
    active = Math.max(0, Math.min(shown.length - 1, at));
    const top = active * ROW, height = scroll.clientHeight - 2 * ROW;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    else if (top > scroll.scrollTop + height) scroll.scrollTop = top - height;
    draw();
    focusActive();
  }

  // --- details --------------------------------------------------------------------------------

  async function open(at) {
    active = at;
    const row = shown[at];
    details = details || (await unpack("data-details"));
    pictures = pictures || byId("data-pictures").textContent.split(",");
    const entry = details[row];
    const title = make("h2", { id: "detail-title" }, `Image ${value("image", row)}: ${cell("status", row)}`);
    const close = make("button", { type: "button", autofocus: true }, "Close");
    close.addEventListener("click", () => dialog.close());
    byId("detail-body").replaceChildren(make("header", {}, title, close), ...(entry ? points(entry, row) : []), facts(entry, row), ...(entry ? answers(entry) : []));
    dialog.showModal();
  }

  function facts(entry, row) {
    const list = make("dl", { class: "facts" });
    const add = (name, ...what) => list.append(make("dt", {}, name), make("dd", {}, ...what));
    add("network", value("network", row));
    const units = value("shown", row).endsWith("px") ? ` (${value("radius", row)} in input units)` : "";
    add("region", `${value("norm", row)} ball of radius ${value("shown", row)}${units}, ${value("inputs", row)}`);
    add("class", `label ${value("label", row)}, predicted ${value("predicted", row)}`);
    add("method", `${value("method", row)} (${value("question", row)})`);
    add("decided by", value("stage", row) || "nothing yet");
    add("margin", `lower bound ${number(value("lower", row))}, upper bound ${number(value("upper", row))}`);
    add("time", `${value("seconds", row)} s, finished ${value("finished", row)}`);
    add("settings", value("settings", row));
    if (!entry) { add("more", "Pictures and margins of this row are not in the page."); return list; }
    if (entry.found) {
      const f = entry.found;
      add("counterexample", `for ${f.target}, exact margin ${f.value}, replayed: ${f.replayed.join(", ") || "not recorded"}${f.near ? "; the exact point is rational, its picture is near it" : ""}`);
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
    const found = entry.found && entry.found.predicted !== null && entry.found.predicted !== undefined ? `, classified as ${entry.found.predicted}` : "";
    const change = entry.change || {};
    const most = change.largest === undefined ? "" : `: ${change.values} values, at most ${change.largest}${change.steps ? ` = ${change.steps} px` : ""}; ${change.colour ? "grey no change" : "blue less, orange more"}`;
    const captions = [`input, label ${value("label", row)}`, `counterexample${found}`, `difference${most}`];
    const figures = entry.pictures.map((k, at) => k === null ? null : make("figure", {}, make("img", { src: "data:image/png;base64," + pictures[k], alt: captions[at] }), make("figcaption", {}, captions[at])));
    return [make("div", { class: "pictures" }, ...figures)];
  }

  function numbers([before, after]) {
    const rows = (before || after).map((_, k) => make("tr", {}, make("th", { scope: "row" }, k), ...[before && before[k], after && after[k], before && after && after[k] - before[k]].map((v) => make("td", { class: "n" }, v === null || v === undefined ? "–" : Number(v.toPrecision(8))))));
    const head = make("tr", {}, ...["value", "input", "counterexample", "difference"].map((t) => make("th", { scope: "col" }, t)));
    return make("div", { class: "wide" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  function answers(entry) {
    const out = [];
    if (entry.targets.length) {
      const ends = entry.targets.flatMap((t) => [t[2], t[3]]).filter((v) => v !== null);
      const low = Math.min(0, ...ends), high = Math.max(0, ...ends, low + 1e-9);
      const x = (v) => (100 * (v - low)) / (high - low);
      const rows = entry.targets.map(([name, status, lower, upper, seconds, stage, note]) => make("tr", { class: status },
        make("th", { scope: "row" }, name), make("td", { class: "status " + status }, WORDS[status] || status),
        make("td", { class: "n" }, number(lower)), make("td", { class: "n" }, number(upper)), track(x, lower, upper),
        make("td", { class: "n" }, seconds.toFixed(2)), make("td", {}, stage || note)));
      const heads = ["rival", "answer", "lower", "upper", "margin", "s", "stage"];
      const head = make("tr", {}, ...heads.map((t) => make("th", { scope: "col", class: t === "lower" || t === "upper" || t === "s" ? "n" : null }, t)));
      head.cells[4].className = "track";
      out.push(make("h3", {}, "Margins of the rivals"), make("div", { class: "wide" }, make("table", { class: "margins" }, make("thead", {}, head), make("tbody", {}, ...rows))));
    }
    if (entry.stages.length) {
      out.push(make("h3", {}, "Time by stage"), make("ul", {}, ...entry.stages.map(([stage, seconds, rivals]) => make("li", {}, `${stage}: ${seconds} s, ${rivals} rival${rivals === 1 ? "" : "s"}`))));
    }
    return out;
  }

  function track(x, lower, upper) {
    const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
    svg.setAttribute("viewBox", "0 0 100 12"); svg.setAttribute("preserveAspectRatio", "none"); svg.setAttribute("aria-hidden", "true");
    if (lower !== null || upper !== null) {
      // From what is certain of the minimum: between both bounds, or from zero to the only one.
      const from = x(lower !== null ? (upper !== null ? lower : Math.min(0, lower)) : 0), to = x(upper !== null ? (lower !== null ? upper : Math.max(0, upper)) : Math.max(0, lower));
      const bar = document.createElementNS(space, "rect");
      for (const [name, v] of [["class", "span"], ["x", Math.min(from, to)], ["width", Math.max(0.8, Math.abs(to - from))], ["y", 2], ["height", 8]]) bar.setAttribute(name, v);
      svg.append(bar);
    }
    const origin = document.createElementNS(space, "path");
    origin.setAttribute("class", "origin"); origin.setAttribute("d", `M${x(0)},0V12`); origin.setAttribute("vector-effect", "non-scaling-stroke");
    svg.append(origin);
    return make("td", { class: "track" }, svg);
  }

  // --- start ----------------------------------------------------------------------------------

  function filters() {
    const form = byId("filters");
    for (const name of FILTERS) {
      const values = table[name].names;
      if (values.length < 2) continue;
      const by = (k) => (name === "shown" ? parseFloat(values[k]) : values[k]);
      const order = values.map((_, k) => k).sort((a, b) => compare(by(a), by(b)));
      const choice = make("select", { id: "f-" + name }, make("option", { value: "" }, "all"));
      for (const k of order) choice.append(make("option", { value: k }, name === "status" ? WORDS[values[k]] || values[k] : values[k]));
      form.append(make("label", {}, TITLES[name] || name, choice));
    }
    form.append(make("label", {}, "image", make("input", { id: "f-image", inputmode: "numeric", autocomplete: "off", placeholder: "number" })));
    const clear = make("button", { type: "reset" }, "Clear");
    form.append(clear);
    form.addEventListener("input", update);
    form.addEventListener("change", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(update));
  }

  function heads() {
    const cells = columns().map(([name, text, right]) => {
      const button = make("button", { type: "button" }, text, make("span", { class: "arrow", "aria-hidden": "true" }));
      button.addEventListener("click", () => {
        sort = { name, down: sort.name === name && !sort.down };
        update();
      });
      return make("th", { scope: "col", "data-name": name, "aria-sort": "none", class: `c-${name}${right ? " n" : ""}` }, button);
    });
    byId("rows").tHead.append(make("tr", {}, ...cells));
  }

  async function start() {
    table = await unpack("data-rows");
    byId("rows").setAttribute("aria-rowcount", table.image.length + 1);
    filters();
    heads();
    update();
    scroll.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
    new ResizeObserver(draw).observe(scroll);
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr.row");
      if (row) open(Number(row.dataset.at));
    });
    body.addEventListener("keydown", (event) => {
      const page = Math.max(1, Math.floor(scroll.clientHeight / ROW) - 2);
      const to = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: shown.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      moveTo(to);
    });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("close", focusActive);
    document.documentElement.dataset.ready = "yes";
  }

  start().catch((error) => {
    count.textContent = "The rows cannot be shown in this browser.";
    console.error(error);
  });
})();
