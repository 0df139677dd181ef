// The map: draws what `/v1/map` says, and tells which node was chosen.

import { at, button, h, svg, table } from "./dom.js";
import { layout } from "./treemap.js";
import { STEPS, count, kind, percent, rate, share, step, time } from "./units.js";

/** As deep as the service goes: it stops by itself where there would be too many nodes. */
const DEPTH = 3;
/** Of so many names the paths are asked for at once: what an address has room for. */
const AT_ONCE = 150;
/** The width of a letter, about; of a bold one. */
const [LETTER, BOLD] = [6.8, 8];

/** As much of the end of a name as fits: the beginning is that of what it is in. */
function shortened(name, width, letter) {
  const most = Math.floor(width / letter);
  if (name.length <= most) return name;
  return most >= 4 ? `…${name.slice(1 - most)}` : "";
}

/** What is wrong with guarantees on a host, or on some below a node; nothing where nothing is. */
function trouble(node) {
  if (node.height > 0) return node.troubled ? `${count(node.troubled, "host")} ${node.troubled === 1 ? "refuses guarantees or is" : "refuse guarantees or are"} silent` : "";
  return { refuses: "it refuses guarantees", silent: "it is silent" }[node.following] ?? "";
}

/** A node in one line, for those who cannot see it. */
function words(node, marked) {
  const what = kind(node.height, node.name);
  const parts = [`${what} ${node.name === "core" ? "" : node.name}`, `headroom ${percent(node.headroom)}`, `${node.used} of ${count(node.slots, "slot")} taken`];
  if (node.height > 0) parts.push(`least inside ${percent(node.least)}`, `${node.tight} of ${count(node.hosts, "host")} tight`);
  if (node.state && node.state !== "open") parts.push(node.state);
  if (!node.state) parts.push("some hosts are closed");
  if (trouble(node)) parts.push(trouble(node));
  if (marked) parts.push(`${count(marked, "machine")} marked`);
  return parts.join(", ");
}

function tip(node, marked) {
  const closed = node.state ? node.state : "some hosts closed";
  return [
    h("b", null, `${kind(node.height, node.name)} ${node.name === "core" ? "" : node.name}`),
    node.name === "core" ? "" : [`headroom ${percent(node.headroom)}`, h("br")],
    node.height > 0 ? [`least inside ${percent(node.least)}`, h("br"), `${node.tight} of ${count(node.hosts, "host")} below 10 %`, h("br")] : "",
    (node.ports ?? []).map((port) => [`${port.name}: ${rate(port.reserved_bit_s)} of ${rate(port.rate_bit_s)}, ${time(port.bound_ns)} of ${time(port.capacity_ns)}`, h("br")]),
    `${node.used.toLocaleString("en")} of ${count(node.slots, "slot")}`,
    node.hosts > 1 ? ` on ${count(node.hosts, "host")}` : "",
    closed !== "open" ? h("b", null, closed) : "",
    trouble(node) ? h("b", null, trouble(node)) : "",
    marked ? h("b", null, `${count(marked, "machine")} marked`) : "",
  ].flat(Infinity);
}

const patterns = () => svg("defs", null,
  svg("pattern", { id: "drained", width: 9, height: 9, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("line", { class: "hatch-back", y2: 9 }), svg("line", { class: "hatch-line", y2: 9 })),
  svg("pattern", { id: "failed", width: 9, height: 9, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("path", { class: "hatch-back", d: "M0 0v9M0 0h9" }), svg("path", { class: "hatch-line", d: "M0 0v9M0 0h9" })));

/**
 * The map. `marks` say what stands out: `{text, hosts: Map(name → machines), ports: [{node, up, refused}]}`.
 */
export class MapView {
  #api;
  #choose;
  #zoom;
  #root = null;
  #trail = [];
  #selected = null;
  #focus = null;
  #marks = null;
  /** What each node is in, nearest first; the service is asked for those that were never drawn. */
  #paths = new Map();
  #drawn = new Map();

  /** `choose(name, height)` is called for what is clicked, `zoom(name)` for where the map should go. */
  constructor(api, { choose, zoom }) {
    [this.#api, this.#choose, this.#zoom] = [api, choose, zoom];
    new ResizeObserver(() => this.#draw()).observe(at("map"));
    at("map").addEventListener("keydown", (event) => this.#key(event));
    at("map").addEventListener("pointermove", (event) => this.#hover(event));
    at("map").addEventListener("pointerleave", () => this.#untip());
    at("map").addEventListener("click", (event) => this.#click(event.target));
    at("map").addEventListener("focusin", (event) => this.#focused(event.target));
    at("map").addEventListener("focusout", () => this.#untip());
    at("mark-clear").addEventListener("click", () => this.mark(null));
    this.#legend();
  }

  /** The node that the map shows. */
  get root() { return this.#root?.name ?? "core"; }

  /** Loads a node and what is below. */
  async show(name) {
    const root = await this.#api.get("/v1/map", { node: name, depth: DEPTH });
    await this.#learn([root.name]);
    const learn = (node) => (node.children ?? []).forEach((child) => {
      this.#paths.set(child.name, [node.name, ...(this.#paths.get(node.name) ?? [])].filter((above) => above !== "core"));
      learn(child);
    });
    learn(root);
    this.#root = root;
    this.#trail = [...(this.#paths.get(root.name) ?? [])].reverse();
    if (this.#marks) await this.#learnMarks();
    this.#draw();
  }

  /** What the topology was is not known any more. */
  forget() { this.#paths.clear(); }

  select(name) {
    this.#element(this.#selected ?? "")?.removeAttribute("aria-current");
    this.#selected = name;
    this.#element(name)?.setAttribute("aria-current", "true");
  }

  /** Makes hosts and ports stand out, or nothing. */
  async mark(marks) {
    this.#marks = marks;
    at("mark").hidden = !marks;
    at("mark").classList.toggle("refused", Boolean(marks?.ports?.some(({ refused }) => refused)));
    if (marks) {
      at("mark-text").textContent = marks.text;
      await this.#learnMarks();
    }
    this.#draw();
  }

  async #learnMarks() {
    await this.#learn([...(this.#marks.hosts?.keys() ?? []), ...(this.#marks.ports ?? []).map(({ node }) => node)]);
  }

  async #learn(names) {
    const unknown = names.filter((name) => name !== "core" && !this.#paths.has(name));
    if (!unknown.length) return;
    for (let first = 0; first < unknown.length; first += AT_ONCE) {
      const found = await this.#api.get("/v1/map/paths", { names: unknown.slice(first, first + AT_ONCE).join(" ") });
      for (const [name, path] of Object.entries(found)) this.#paths.set(name, path);
    }
  }

  /** The drawn node that this one is, or is in. */
  #shown(name) {
    return [name, ...(this.#paths.get(name) ?? [])].find((candidate) => this.#drawn.has(candidate));
  }

  #draw() {
    const [width, height] = [at("map").clientWidth, at("map").clientHeight];
    if (!this.#root || width < 20 || height < 20) return;
    const had = document.activeElement?.closest?.("#map .node");
    const all = layout(this.#root, { x: 1, y: 1, width: width - 2, height: height - 2 });
    this.#drawn = new Map(all.map((item) => [item.node.name, item]));
    const hosts = new Map();
    for (const [name, machines] of this.#marks?.hosts ?? []) {
      const shown = this.#shown(name);
      if (shown) hosts.set(shown, (hosts.get(shown) ?? 0) + machines);
    }
    const ports = new Map();
    for (const port of this.#marks?.ports ?? []) {
      const shown = this.#shown(port.node);
      if (shown) ports.set(shown, [...(ports.get(shown) ?? []), { ...port, inside: shown !== port.node }]);
    }
    if (!this.#drawn.has(this.#focus)) this.#focus = all.find(({ level }) => level === 1)?.node.name ?? this.#root.name;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Map of ${this.#root.name}: areas are slots, colours headroom. Arrow keys move, Page Up selects the enclosing rack or pod, Page Down the first place inside, Enter opens, Escape returns.` },
      patterns(), all.filter(({ level, frame, node }) => level || (frame && node.name !== "core") || !frame).map((item) => this.#node(item, hosts.get(item.node.name), ports.get(item.node.name))));
    at("map").classList.toggle("marked", Boolean(this.#marks?.hosts?.size));
    at("map").replaceChildren(picture);
    if (had) this.#element(this.#focus)?.focus();
    this.#crumbs();
    this.#rows();
  }

  #node({ node, box, frame, header }, marked, ports) {
    const inset = 0.75;
    const { x, y } = { x: box.x + inset, y: box.y + inset };
    const [width, height] = [Math.max(0.5, box.width - 2 * inset), Math.max(0.5, box.height - 2 * inset)];
    const headroom = frame ? node.headroom : share(node);
    const round = Math.min(3, width / 8, height / 8);
    const closed = node.state && node.state !== "open" ? node.state : null;
    const classes = ["node", frame ? "frame" : "cell", node.troubled && "trouble", marked && "has", ports && "port", ports?.some(({ refused }) => refused) && "refused"];
    const group = svg("g", {
      class: classes.filter(Boolean).join(" "), role: "button", tabindex: node.name === this.#focus ? 0 : -1,
      "data-node": node.name, "data-height": node.height, "data-headroom": node.headroom, "data-least": node.least, "data-share": share(node), "data-state": node.state ?? "mixed", "data-troubled": node.troubled, "data-marked": marked ?? 0,
      "data-ports": ports?.map((port) => `${port.node} ${port.up ? "up" : "down"}`).join(",") ?? "",
      "aria-label": words(node, marked), "aria-current": node.name === this.#selected ? "true" : undefined,
    });
    const colour = `step-${step(headroom)}`;
    if (frame) {
      group.append(svg("rect", { class: `head ${colour}`, x, y, width, height: header - 1, rx: round }),
        svg("rect", { class: "box", x, y, width, height, rx: round }));
    } else {
      group.append(svg("rect", { class: `box ${colour}`, x, y, width, height, rx: round }));
    }
    if (closed && !frame) group.append(svg("rect", { class: "hatch", x, y, width, height, rx: round, fill: `url(#${closed})` }));
    this.#label(group, { node, frame, header, colour, closed, headroom, marked }, { x, y, width, height });
    if (ports) this.#callout(group, ports, { x, y, width, height }, frame ? header : 0);
    return group;
  }

  /** The name, the number, and if there is room the slots. */
  #label(group, { node, frame, header, colour, closed, headroom, marked }, { x, y, width, height }) {
    const room = frame ? header : height;
    if (room < 13 || width < 26) return;
    const value = percent(headroom);
    const line = (text, from, anchor, top, more) => svg("text", { class: `${colour} ${more}`, x: from, y: top, "text-anchor": anchor }, text);
    const over = closed && !frame ? "over" : "";
    const letter = frame || over ? BOLD : LETTER;
    const top = y + Math.min(room - 4, 14);
    const whole = closed && frame ? `${node.name} ${closed}` : node.name;
    const both = (whole.length + value.length + 1) * letter <= width - 8;
    const name = shortened(whole, width - 8, letter);
    if (name) group.append(line(name, x + 4, "start", top, over));
    if (both) group.append(line(value, x + width - 4, "end", top, over));
    if (frame) return;
    if (!name) return;
    let used = 18;
    if (!both && height > used + 14 && value.length * letter <= width - 8) {
      group.append(line(value, x + 4, "start", y + used + 11, over));
      used += 15;
    }
    if (closed && height > used + 26 && closed.length * letter <= width - 8) {
      group.append(line(closed, x + 4, "start", y + used + 11, `${over} state`));
      used += 15;
    }
    if (!this.#slots(group, { node, colour, marked }, { x: x + 4, y: y + used + 2, width: width - 8, height: height - used - 6 }) && marked) {
      const text = `${marked}`;
      const side = text.length * LETTER + 8;
      if (height < used + 16 || width < side + 4) return;
      group.append(svg("rect", { class: "badge", x: x + width - side - 3, y: y + height - 18, width: side, height: 15, rx: 7 }),
        svg("text", { class: "badged small", x: x + width - side / 2 - 3, y: y + height - 6.5, "text-anchor": "middle" }, text));
    }
  }

  /** A host's slots as small squares, if they can be told apart. */
  #slots(group, { node, colour, marked }, { x, y, width, height }) {
    if (node.height > 0 || node.slots > 256) return false;
    let side = 16;
    while (side >= 5 && Math.floor(width / side) * Math.floor(height / side) < node.slots) side -= 0.5;
    const columns = Math.floor(width / side);
    if (side < 5 || columns < 1) return false;
    const slots = svg("g", { class: colour });
    for (let slot = 0; slot < node.slots; slot += 1) {
      const state = slot < (marked ?? 0) ? "here" : slot < node.used ? "used" : "";
      slots.append(svg("rect", { class: `slot ${state}`, x: x + (slot % columns) * side, y: y + Math.floor(slot / columns) * side, width: side - 2.5, height: side - 2.5, rx: state === "here" ? side / 2 : 1 }));
    }
    group.append(slots);
    return true;
  }

  #callout(group, ports, { x, y, width, height }, header) {
    const arrows = [...new Set(ports.map(({ up }) => (up ? "▲" : "▼")))].join("");
    const inside = ports.every((port) => port.inside);
    const refused = ports.some((port) => port.refused);
    const text = inside ? `${arrows} inside` : refused ? `${arrows} refuses` : arrows;
    const side = Math.min(width, text.length * LETTER + 10);
    const from = { x: x + (width - side) / 2, y: header ? y + 1 : y + height - 18 };
    if (height < 18 || width < 14) return;
    group.append(svg("rect", { class: "callout", ...from, width: side, height: 16, rx: 3 }),
      svg("text", { class: "called small", x: x + width / 2, y: from.y + 12, "text-anchor": "middle" }, side < text.length * LETTER ? arrows : text));
  }

  #element(name) { return at("map").querySelector(`[data-node="${CSS.escape(name)}"]`); }

  #item(target) { return this.#drawn.get(target.closest?.(".node")?.dataset.node); }

  #click(target) {
    const item = this.#item(target);
    if (item) this.#open(item);
  }

  /** A host is chosen; what has hosts is also gone into. */
  #open({ node }) {
    this.#focus = node.name;
    this.#choose(node.name, node.height);
    if (node.height > 0 && node.name !== this.#root.name) this.#zoom(node.name);
  }

  #key(event) {
    const item = this.#item(event.target);
    // Around a cell there are frames, and in a frame are cells.
    const level = { PageUp: () => item.parent?.name, PageDown: () => item.node.children?.[0]?.name };
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "Escape" && this.#root.name !== "core") {
      this.#zoom(this.#trail.at(-1) ?? "core");
    } else if (item && (event.key === "Enter" || event.key === " ")) {
      this.#open(item);
    } else if (item && moves[event.key]) {
      const next = this.#beside(item, moves[event.key]);
      if (next) this.#element(next)?.focus();
    } else if (item && level[event.key]) {
      this.#element(level[event.key]() ?? "")?.focus();
    } else {
      return;
    }
    event.preventDefault();
  }

  /** The nearest cell that way. Frames are passed over; Tab and the table lead to them. */
  #beside({ box, node }, [dx, dy]) {
    const middle = (of) => [of.x + of.width / 2, of.y + of.height / 2];
    const [x, y] = middle(box);
    let best = null;
    for (const item of this.#drawn.values()) {
      if (item.frame || item.node.name === node.name) continue;
      const [to, down] = middle(item.box);
      const ahead = (to - x) * dx + (down - y) * dy;
      const aside = Math.abs((to - x) * dy) + Math.abs((down - y) * dx);
      if (ahead <= 1) continue;
      const far = ahead + 3 * aside;
      if (!best || far < best.far) best = { far, name: item.node.name };
    }
    return best?.name;
  }

  #focused(target) {
    const item = this.#item(target);
    if (!item) return;
    this.#element(this.#focus)?.setAttribute("tabindex", "-1");
    this.#focus = item.node.name;
    target.closest(".node").setAttribute("tabindex", "0");
    if (!target.matches(":focus-visible")) return;
    const edge = at("map").getBoundingClientRect();
    this.#tip(item, edge.left + item.box.x + item.box.width / 2, edge.top + item.box.y + item.box.height);
  }

  #hover(event) {
    const item = this.#item(event.target);
    if (item) this.#tip(item, event.clientX, event.clientY + 14);
    else this.#untip();
  }

  #tip({ node }, x, y) {
    const box = at("tip");
    box.replaceChildren(...tip(node, Number(this.#element(node.name)?.dataset.marked)));
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(x + 8, innerWidth - width - 8))}px`;
    box.style.top = `${y + height > innerHeight - 8 ? Math.max(4, y - height - 30) : y}px`;
  }

  #untip() { at("tip").hidden = true; }

  #crumbs() {
    const names = this.#root.name === "core" ? ["core"] : ["core", ...this.#trail, this.#root.name];
    at("trail").replaceChildren(h("ol", null, names.map((name, index) => h("li", null, index === names.length - 1
      ? h("span", { "aria-current": "location" }, name)
      : button(name, () => this.#zoom(name), { class: "link", "data-zoom": name })))));
  }

  #rows() {
    const children = this.#root.children ?? [];
    at("map-rows").replaceChildren(table(`Directly below ${this.#root.name}`, ["name", "what", "headroom", "least inside", "tight hosts", "slots taken", "hosts", "state", "guarantees"],
      children.map((node) => [
        button(node.name, () => this.#open({ node }), { class: "link", "data-row": node.name }),
        kind(node.height, node.name), percent(node.headroom), node.height > 0 ? percent(node.least) : "", node.height > 0 ? node.tight : "", `${node.used} of ${node.slots}`, node.hosts, node.state ?? "mixed", trouble(node) || (node.following ?? ""),
      ])));
  }

  #legend() {
    const swatch = (text, ...shapes) => h("span", null, svg("svg", { viewBox: "0 0 22 14", "aria-hidden": "true" }, shapes), text);
    const box = (more) => svg("rect", { x: 0.5, y: 0.5, width: 21, height: 13, rx: 2, ...more });
    at("legend").append(h("span", null, "Headroom of a host's link; of a rack or pod, the share of hosts with 10 % or more:"),
      ...STEPS.map(({ label }, index) => swatch(label, box({ class: `swatch step-${index}` }))),
      swatch("drained", box({ class: "swatch step-4" }), box({ fill: "url(#drained)" })),
      swatch("failed", box({ class: "swatch step-4" }), box({ fill: "url(#failed)" })),
      swatch("a host refuses guarantees, or is silent", box({ class: "swatch step-4 trouble" })),
      h("span", null, "Area: slots. Squares: slots of a host, filled if occupied."));
  }
}
