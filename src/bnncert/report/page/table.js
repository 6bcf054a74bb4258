// The table of answers: filters, sorting, and the rows that are visible.

const ROW = 34; // pixels, as in page.css
const SPARE = 12; // rows drawn above and below what is visible
const MOST_PRINTED = 1000; // rows on paper
// Name, heading, and whether it is a number.
const COLUMNS = [
  ["image", "image", true], ["picture", "input"], ["label", "label", true], ["network", "network"],
  ["norm", "norm"], ["radius", "radius", true], ["inputs", "inputs"], ["method", "method"],
  ["question", "question"], ["status", "answer"], ["lower", "lower", true], ["upper", "upper", true],
  ["seconds", "seconds", true], ["stage", "decided by"],
];
const FILTERS = ["network", "norm", "shown", "inputs", "method", "question", "status"];
const TITLES = { shown: "radius", status: "answer" };
const scroll = byId("scroll"), body = byId("rows").tBodies[0], count = byId("count");
const padding = () =>
  make("tr", { class: "pad", "aria-hidden": "true" }, make("td", { colspan: COLUMNS.length }));
const above = padding(), below = padding(); // as high as the rows that are not drawn
let shown = [], sort = { name: null, down: false }, active = 0, columns = [], printing = false;

function cell(name, row) {
  const v = value(name, row);
  if (name === "status") return word(v);
  if (name === "radius") return value("shown", row);
  if (name === "seconds") return v.toFixed(2);
  return number(v);
}

// A column in which all rows are equal is stated above the table instead.
function chooseColumns() {
  const same = [];
  columns = COLUMNS.filter(([name, title]) => {
    if (name === "image" || name === "status") return true;
    if (name === "picture") return table.picture.names.some((k) => k !== null);
    const data = column(name === "radius" ? "shown" : name);
    if (data.some((v) => v !== data[0])) return true;
    const text = cell(name, 0);
    if (text !== "" && text !== "–") same.push(`${title} ${text}`);
    return false;
  });
  byId("same").textContent = same.length ? `The same in all rows: ${same.join(", ")}.` : "";
}

// --- filter and sort ---------------------------------------------------------------------------

function compare(a, b) {
  const aNone = a === null || a === "", bNone = b === null || b === "";
  if (aNone || bNone) return aNone - bNone;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a) < String(b) ? -1 : a === b ? 0 : 1;
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

// The place of each row in the order of a column; null for rows without a value.
function ranks(name) {
  const data = table[name];
  if (!data.names) return data;
  const order = data.names.map((_, k) => k).sort((a, b) => compare(data.names[a], data.names[b]));
  const place = new Array(order.length);
  order.forEach((k, at) => { place[k] = at; });
  const empty = (k) => data.names[k] === "" || data.names[k] === null;
  return data.codes.map((k) => (empty(k) ? null : place[k]));
}

function update() {
  const tests = wanted(), total = table.image.length;
  shown = [];
  for (let row = 0; row < total; row++) {
    if (tests.every(([codes, code]) => codes[row] === code)) shown.push(row);
  }
  if (sort.name) {
    const rank = ranks(sort.name), sign = sort.down ? -1 : 1;
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
  redraw();
}

// --- the visible part of the table -------------------------------------------------------------

function redraw() {
  body.replaceChildren(above, below);
  draw();
}

function draw() {
  let first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - SPARE);
  let last = Math.min(shown.length, Math.ceil((scroll.scrollTop + scroll.clientHeight) / ROW) + SPARE);
  if (printing) [first, last] = [0, Math.min(shown.length, MOST_PRINTED)];
  // A row that stays visible stays the same element: it may have the focus or be under a finger.
  for (const row of body.querySelectorAll("tr.row")) {
    if (row.dataset.at < first || row.dataset.at >= last) row.remove();
  }
  let next = above.nextSibling;
  for (let at = first; at < last; at++) {
    if (next !== below && Number(next.dataset.at) === at) next = next.nextSibling;
    else body.insertBefore(line(at), next);
  }
  above.style.height = printing ? 0 : `${first * ROW}px`;
  below.style.height = printing ? 0 : `${(shown.length - last) * ROW}px`;
}

function line(at) {
  const row = shown[at];
  const cells = columns.map(([name, , right]) => {
    if (name === "image") return make("td", { class: "n c-image" }, opener(at, row));
    if (name === "picture") return make("td", { class: "c-picture" }, ...thumbnails(row));
    const text = cell(name, row);
    const extra = name === "status" ? ` status ${value("status", row)}` : "";
    const long = name === "network" || name === "stage" || name === "method";
    return make("td", { class: `c-${name}${right ? " n" : ""}${extra}`, title: long ? text : null }, text);
  });
  const odd = at % 2 ? "row odd" : "row";
  return make("tr", { class: odd, "data-at": at, "aria-rowindex": at + 2 }, ...cells);
}

// The button that opens the details of a row.
function opener(at, row) {
  const image = value("image", row);
  const label = `Details of image ${image}, ${value("method", row)}, radius ${cell("radius", row)}, ` +
    `${value("inputs", row)}: ${cell("status", row)}`;
  return make("button", {
    type: "button", tabindex: at === active ? "0" : "-1", "aria-label": label, "aria-haspopup": "dialog",
  }, image);
}

// The input, and its counterexample if there is one.
function thumbnails(row) {
  if (!pictures) return [];
  const entry = details[row], input = value("picture", row);
  const found = entry && entry.pictures ? entry.pictures[1] : null;
  return [
    input === null ? null : picture(input, `input ${value("image", row)}`, 28),
    found === null || found === undefined || found === input ? null : picture(found, "its counterexample", 28),
  ];
}

function focusActive() {
  for (const button of body.querySelectorAll("button")) {
    const mine = Number(button.closest("tr").dataset.at) === active;
    button.tabIndex = mine ? 0 : -1;
    if (mine) button.focus({ preventScroll: true });
  }
}

// Scroll until a row is visible.
function reveal(at) {
  active = Math.max(0, Math.min(shown.length - 1, at));
  const top = active * ROW, height = scroll.clientHeight - 2 * ROW;
  if (top < scroll.scrollTop) scroll.scrollTop = top;
  else if (top > scroll.scrollTop + height) scroll.scrollTop = top - height;
  draw();
}

function moveTo(at) {
  reveal(at);
  focusActive();
}

// --- printing ----------------------------------------------------------------------------------

// On paper the table has all chosen rows, up to a limit, and not only the visible ones.
function beforePrint() {
  printing = true;
  redraw();
  const left = shown.length - MOST_PRINTED;
  byId("printed").textContent = left > 0 ? `The first ${MOST_PRINTED} of ${shown.length} chosen rows are printed.` : "";
}

function afterPrint() {
  printing = false;
  redraw();
}

// --- start -------------------------------------------------------------------------------------

function filters() {
  const form = byId("filters");
  for (const name of FILTERS) {
    const values = table[name].names;
    if (values.length < 2) continue;
    const by = (k) => (name === "shown" ? parseFloat(values[k]) : values[k]);
    const order = values.map((_, k) => k).sort((a, b) => compare(by(a), by(b)));
    const choice = make("select", { id: "f-" + name }, make("option", { value: "" }, "all"));
    for (const k of order) {
      choice.append(make("option", { value: k }, name === "status" ? word(values[k]) : values[k]));
    }
    form.append(make("label", {}, TITLES[name] || name, choice));
  }
  const image = { id: "f-image", inputmode: "numeric", autocomplete: "off", placeholder: "number" };
  form.append(make("label", {}, "image", make("input", image)));
  form.append(make("button", { type: "reset" }, "Clear"));
  form.addEventListener("input", update);
  form.addEventListener("change", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(update));
}

function heads() {
  const cells = columns.map(([name, text, right]) => {
    const button = make("button", { type: "button" }, text, make("span", { class: "arrow", "aria-hidden": "true" }));
    button.addEventListener("click", () => {
      sort = { name, down: sort.name === name && !sort.down };
      update();
    });
    const style = `c-${name}${right ? " n" : ""}`;
    return make("th", { scope: "col", "data-name": name, "data-title": text, "aria-sort": "none", class: style }, button);
  });
  byId("rows").tHead.append(make("tr", {}, ...cells));
}

function startTable() {
  byId("rows").setAttribute("aria-rowcount", table.image.length + 1);
  chooseColumns();
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
    const to = {
      ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page,
      Home: 0, End: shown.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    moveTo(to);
  });
  addEventListener("beforeprint", beforePrint);
  addEventListener("afterprint", afterPrint);
}
