// Building elements without ever reading markup: whatever a name is, it stays text.

const SVG = "http://www.w3.org/2000/svg";

function put(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element; attributes that begin with "on" are listeners. */
export const h = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);

/** The same of SVG. */
export const svg = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);

/** The element of this id. */
export const at = (id) => document.getElementById(id);

/** A button; `data` are its data attributes. */
export const button = (text, onclick, attributes) => h("button", { type: "button", onclick, ...attributes }, text);

/** A table; rows are lists of cells, a cell is what `append` takes. The first of a row is its heading. */
export function table(caption, head, rows, attributes) {
  return h("div", { class: "wide" }, h("table", attributes,
    caption && h("caption", null, caption),
    h("thead", null, h("tr", null, head.map((cell) => h("th", { scope: "col" }, cell)))),
    h("tbody", null, rows.map(([first, ...rest]) =>
      h("tr", null, h("th", { scope: "row" }, first), rest.map((cell) => h("td", null, cell))))),
  ));
}

/** A bar of what is taken; the number stands beside it, so it is for the eye alone. */
export function bar(share, step) {
  const width = (Math.max(0, Math.min(1, share || 0)) * 100).toFixed(1);
  return svg("svg", { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "rest", width: 100, height: 6 }),
    svg("rect", { class: step === undefined ? "taken" : `taken step-${step}`, width, height: 6 }));
}
