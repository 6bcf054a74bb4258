// What all parts of the page use: elements, the packed data, and values as text.
// Text from the results file only ever becomes text nodes and attributes.

const WORDS = { not_robust: "not robust", not_tried: "not tried" };
const byId = (id) => document.getElementById(id);
const number = (v) => (v === null || v === undefined ? "–" : String(v));
const word = (status) => WORDS[status] || status;

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  const known = children.filter((c) => c !== null && c !== undefined);
  node.append(...known.map((c) => (c instanceof Node ? c : String(c))));
  return node;
}

// An element of a drawing.
function drawn(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// The content of a data script: JSON, deflated and in base64.
async function unpack(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// The rows by columns; a column with few values has their names and a code for each row.
let table = null;
const column = (name) => (table[name].names ? table[name].codes : table[name]);
const value = (name, row) => {
  const data = table[name];
  return data.names ? data.names[data.codes[row]] : data[row];
};

// Details of rows and pictures are unpacked when they are needed for the first time.
let details = null, pictures = null;
async function unpackDetails() {
  details = details || (await unpack("data-details"));
  pictures = pictures || byId("data-pictures").textContent.split(",");
}
const picture = (k, alt, size) =>
  make("img", { src: "data:image/png;base64," + pictures[k], alt, width: size, height: size });
