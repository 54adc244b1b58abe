// Search, click and zoom on memory maps. Everything it shows is in the page already, as titles of rectangles.
"use strict";
for (const picture of document.querySelectorAll(".picture.map")) {
  const svg = picture.querySelector("svg");
  const boxes = [...svg.querySelectorAll(".buffer")];
  const text = box => box.querySelector("title").textContent;
  const name = box => text(box).split("\n")[0];
  const whole = svg.viewBox.baseVal, [width, height] = [whole.width, whole.height];
  const make = (tag, parent, properties = {}) => parent.appendChild(Object.assign(document.createElement(tag), properties));

  const tools = document.createElement("div");
  tools.className = "tools";
  picture.closest("figure").insertBefore(tools, picture.closest(".scroll"));
  const search = make("input", tools, { type: "search", placeholder: "find a tensor", ariaLabel: "Find a tensor on the map" });
  const button = (label, title, onclick) => make("button", tools, { type: "button", textContent: label, title, ariaLabel: title, onclick });
  const found = make("output", tools, { className: "found" });
  const about = make("pre", tools, { className: "tensor", hidden: true, ariaLive: "polite" });

  const zoom = (factor, x = whole.x + whole.width / 2, y = whole.y + whole.height / 2) => {
    const scale = Math.min(Math.max(whole.width * factor, width / 40), width) / whole.width;
    [whole.width, whole.height] = [whole.width * scale, whole.height * scale];
    move(x - (x - whole.x) * scale, y - (y - whole.y) * scale);
  };
  const move = (x, y) => {
    whole.x = Math.min(Math.max(x, 0), width - whole.width);
    whole.y = Math.min(Math.max(y, 0), height - whole.height);
    picture.classList.toggle("zoomed", whole.width < width);
  };
  const point = event => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const select = chosen => {
    // A tensor near the peak is drawn twice: on the whole map and enlarged.
    boxes.forEach(box => box.classList.toggle("chosen", chosen !== null && text(box) === text(chosen)));
    about.hidden = chosen === null;
    about.textContent = chosen === null ? "" : text(chosen);
  };
  const look = () => {
    const wanted = search.value.trim().toLowerCase();
    const hits = boxes.filter(box => wanted && name(box).toLowerCase().includes(wanted));
    boxes.forEach(box => box.classList.toggle("other", wanted !== "" && !hits.includes(box)));
    const names = new Set(hits.map(text)).size;
    found.textContent = wanted ? `${names} of ${new Set(boxes.map(text)).size} found` : "";
    return hits;
  };

  button("+", "Zoom in", () => zoom(0.6));
  button("−", "Zoom out", () => zoom(1 / 0.6));
  button("all", "Show the whole map", () => zoom(Infinity));
  tools.append(found, about);
  search.oninput = look;
  search.onkeydown = event => {
    if (event.key !== "Enter") return;
    const hits = look();
    if (hits.length) select(hits[(hits.findIndex(box => box.classList.contains("chosen")) + 1) % hits.length]);
  };
  svg.ondblclick = event => { const at = point(event); zoom(event.shiftKey ? 1 / 0.6 : 0.6, at.x, at.y); };
  let from = null, dragged = false;
  svg.onpointerdown = event => { from = point(event); dragged = false; };
  window.addEventListener("pointerup", () => { from = null; });
  svg.onpointermove = event => {
    if (!from || whole.width === width) return;
    const at = point(event);
    dragged = dragged || Math.hypot(at.x - from.x, at.y - from.y) > 3;
    move(whole.x + from.x - at.x, whole.y + from.y - at.y);
  };
  svg.onclick = event => {
    if (!dragged) select(event.target.closest(".buffer"));
  };
}
