// The charts: the value under the pointer, hiding and showing a method, and a larger view.

const REACH = 40; // how near the pointer must be to a vertex, in the units of a drawing
const tip = make("div", { id: "tip", role: "status", hidden: true });

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${y - box.height - 12 > 4 ? y - box.height - 12 : y + 18}px`;
}

// The vertices of a curve that have a text: [x, y, text].
function vertices(line) {
  if (!line.vertices) {
    const texts = line.dataset.tips.split("\n");
    const places = line.getAttribute("d").slice(1).split("L").map((p) => p.split(",").map(Number));
    line.vertices = places.map(([x, y], k) => [x, y, texts[k]]).filter(([, , text]) => text);
  }
  return line.vertices;
}

// The vertex that is nearest to a place, with the texts of all curves that meet there.
function nearest(svg, x, y) {
  let best = null, least = REACH;
  for (const line of svg.querySelectorAll("path[data-tips]")) {
    if (line.closest("[hidden]")) continue;
    for (const [vx, vy, text] of vertices(line)) {
      const distance = Math.hypot(vx - x, vy - y);
      if (best && Math.hypot(vx - best.x, vy - best.y) < 1) best.text += "\n" + text;
      else if (distance < least) [best, least] = [{ x: vx, y: vy, text }, distance];
    }
  }
  return best;
}

function hover(event) {
  const svg = event.target.closest("figure > svg");
  if (!svg) return leave();
  const bar = event.target.closest("[data-tip]");
  if (bar) return showTip(bar.dataset.tip, event.clientX, event.clientY);
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const found = nearest(svg, at.x, at.y);
  leave();
  if (!found) return;
  svg.append(drawn("circle", { class: "here", cx: found.x, cy: found.y, r: 6 }));
  const place = new DOMPoint(found.x, found.y).matrixTransform(svg.getScreenCTM());
  showTip(found.text, place.x, place.y);
}

function leave() {
  tip.hidden = true;
  for (const circle of document.querySelectorAll("circle.here")) circle.remove();
}

// A button of a legend hides or shows its method in all charts of the same panel.
function toggle(button) {
  const shown = button.getAttribute("aria-pressed") !== "true";
  const panel = button.closest(".panel");
  for (const node of panel.querySelectorAll(`[data-series="${button.dataset.series}"]`)) {
    if (node.matches("button")) node.setAttribute("aria-pressed", shown);
    else node.toggleAttribute("hidden", !shown);
  }
}

function enlarge(button) {
  const large = button.closest("figure").classList.toggle("large");
  button.setAttribute("aria-pressed", large);
  button.textContent = large ? "Smaller" : "Larger";
  button.closest("figure").scrollIntoView({ block: "nearest" });
}

function startCharts() {
  document.body.append(tip);
  for (const caption of document.querySelectorAll(".charts figcaption")) {
    caption.append(make("button", { type: "button", class: "size", "aria-pressed": "false" }, "Larger"));
  }
  for (const charts of document.querySelectorAll(".charts")) {
    charts.addEventListener("pointermove", hover, { passive: true });
    charts.addEventListener("pointerdown", hover, { passive: true });
    charts.addEventListener("pointerleave", leave);
    charts.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button && button.dataset.series) toggle(button);
      else if (button) enlarge(button);
    });
  }
  addEventListener("scroll", leave, { passive: true });
}
