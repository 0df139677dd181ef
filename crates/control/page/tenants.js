// The list of tenants, and one of them: where it is, resize, delete, the bound of a pair.

import { at, button, h, table } from "./dom.js";
import { count, nanos, percent, summary, time } from "./units.js";
import { ports } from "./place.js";

const PAGE = 25;
/** Whether a tenant has what it is promised, as a word. */
const tag = ({ state }) => h("span", { class: `tag ${{ admitted: "pass", degraded: "fail" }[state] ?? ""}` }, state);

/** The hosts that do not keep it, or not yet, and why. */
const why = ({ hosts }) => (hosts ?? []).filter(({ state }) => state !== "admitted").slice(0, FEW_HOSTS)
  .map(({ host, why: reason }) => h("div", null, `${host}: ${reason}`));

/** The furthest percentile that so many packets carry, and how long it is; null where none does. */
const furthest = ({ p99_ns: near, p99_9_ns: far }) => (far !== undefined ? ["99.9 %", far] : near !== undefined ? ["99 %", near] : null);

/** A time beside the promised delay, as a bar and in words; nothing where none is promised. */
function besidePromise(long, delay) {
  if (!delay) return null;
  const share = long / nanos(delay);
  const words = share > 1 ? `longer than the promised ${delay} itself` : `${percent(Math.ceil(share * 1000))} of the promised ${delay}`;
  return h("div", { class: share > 1 ? "beside over" : "beside" },
    h("meter", { min: 0, max: 1, value: Math.min(share, 1), "aria-label": words }), words);
}

/** How many bursts a machine may send without a pause, and into what. */
function bursts({ bursts: most }) {
  if (most === undefined) return "1 for each receiver, as it was admitted by an earlier version";
  return most === "per-receiver" ? "1 for each receiver" : `${most} into each host, rack and pod`;
}

/** What a tenant's hosts measured: a line each, beside its promised delay, and what nobody measures. */
function measured({ measured: found }, delay) {
  if (!found) return null;
  const line = ({ host, window_ns: window, tail }, says) => {
    const [share, long] = furthest(tail) ?? [];
    const many = `${count(tail.packets, "packet")} in ${time(window)}`;
    return h("div", null, share ? `${host}: ${share} of ${many} ${says} at most ${time(long)}` : `${host}: ${many}, too few to judge`, share && besidePromise(long, delay));
  };
  return [
    found.sending && line(found.sending, "left late by"),
    found.receiving && line(found.receiving, "waited for their machine"),
    h("div", { class: "soft" }, "Values of the host with the longest waits. These waits come on top of the promised delay of the path. Waits on the path are not measured, because the hosts' clocks differ."),
  ];
}

/** The entry of a list: the wait of packets for the tenant's machines. */
function waited({ measured: found }) {
  const [share, long] = (found?.receiving && furthest(found.receiving.tail)) ?? [];
  return share && h("div", { class: "soft" }, `measured: ${share} waited at most ${time(long)} at its host`);
}

/** Of a tenant with more hosts or machines, these are shown until all are asked for. */
const [FEW_HOSTS, FEW_MACHINES] = [24, 64];

export class Tenants {
  #app;
  /** What `after` each page up to this one was asked with. */
  #pages = [undefined];
  #filter = {};
  #open = null;
  #all = false;
  #pair = [null, null];

  constructor(app) {
    this.#app = app;
    at("filter").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#filter = Object.fromEntries(["owner", "name", "state"].map((field) => [field, at("filter").elements[field].value.trim()]));
      this.#pages = [undefined];
      app.attempt(() => this.refresh());
    });
  }

  async refresh() {
    const page = await this.#app.api.get("/v1/tenants", { limit: PAGE, after: this.#pages.at(-1), ...this.#filter });
    this.#list(page);
    if (this.#open) await this.open(this.#open.id, true);
  }

  #list({ items, next }) {
    const turn = (change) => this.#app.attempt(() => { change(); return this.refresh(); });
    at("tenant-list").replaceChildren(
      items.length
        ? table(null, ["tenant", "state", "promised"], items.map((tenant) => [
          button(`${tenant.owner}/${tenant.name}`, () => this.#app.attempt(() => this.open(tenant.id)), {
            class: "link", "data-tenant": tenant.id,
          }),
          [tag(tenant.standing), tenant.moving && [" ", h("span", { class: "tag" }, "moving")]],
          [summary(tenant.request), waited(tenant.standing)],
        ]), { id: "tenants" })
        : h("p", { class: "soft" }, Object.values(this.#filter).some(Boolean) ? "No tenant is selected by this filter." : "No tenants yet."),
      h("p", { class: "actions" },
        this.#pages.length > 1 && button("Previous", () => turn(() => this.#pages.pop()), { id: "previous" }),
        next && button("Next", () => turn(() => this.#pages.push(next)), { id: "next" })),
    );
  }

  /** Shows a tenant; `again` if it is the one that is shown already. */
  async open(id, again = false) {
    let tenant;
    try {
      tenant = await this.#app.api.get(`/v1/tenants/${id}`);
    } catch (problem) {
      if (!(again && problem.status === 404)) throw problem;
      this.#close();
      return;
    }
    if (!again || this.#open?.id !== id) {
      this.#all = false;
      this.#pair = [null, null];
      this.#app.showTab("tenants");
    }
    const same = again && JSON.stringify(tenant) === JSON.stringify(this.#open);
    this.#open = tenant;
    if (!same) {
      this.#draw();
      await this.#mark();
    }
    if (this.#pair.every((number) => number !== null)) await this.#bound();
  }

  #close() {
    this.#open = null;
    at("tenant").hidden = true;
    at("tenant-all").hidden = false;
    this.#app.mark(null);
  }

  #mark(pair) { return this.mark(this.#open, pair); }

  /** Shows a tenant's machines on the map, and the way between two of them. */
  mark({ owner, name, request, runs, moving }, pair) {
    const hosts = new Map();
    for (const { host, count: many } of runs) hosts.set(host, (hosts.get(host) ?? 0) + many);
    const here = `${count(request.vms, "machine")} on ${count(hosts.size, "host")}${moving ? `, machine ${moving.vm} on its way to ${moving.to}` : ""}`;
    // A machine that is on its way has a place on both hosts.
    if (moving) hosts.set(moving.to, (hosts.get(moving.to) ?? 0) + 1);
    const path = (pair?.ports ?? []).map((port) => {
      const cut = port.name.lastIndexOf(" ");
      return { node: port.name.slice(0, cut), up: port.name.slice(cut + 1) === "up" };
    });
    const text = pair ? `${owner}/${name}: from machine ${pair.from} to ${pair.to}` : `${owner}/${name}: ${here}`;
    return this.#app.mark({ text, hosts, ports: path });
  }

  #draw() {
    const { id, owner, name, request, runs, moving, standing } = this.#open;
    const { guarantee, domains } = request;
    const fact = (term, text) => text !== undefined && [h("dt", null, term), h("dd", null, text)];
    const number = h("input", { id: "resize-vms", type: "number", min: 1, value: request.vms, "aria-label": "New number of machines" });
    at("tenant").hidden = false;
    at("tenant-all").hidden = true;
    at("tenant").replaceChildren(
      h("p", null, button("‹ All tenants", () => { this.#close(); at("filter").elements.name.focus(); }, { class: "link", id: "tenant-back" })),
      h("h2", { id: "tenant-name" }, `${owner}/${name}`),
      h("dl", { class: "facts", id: "tenant-facts" },
        h("dt", null, "State"), h("dd", { id: "tenant-state" }, tag(standing), why(standing)),
        moving && [h("dt", null, "On its way"), h("dd", { id: "tenant-moving" }, `machine ${moving.vm} to ${moving.to}; both hosts keep a place for it`)],
        fact("Number", id), fact("Machines", request.vms),
        guarantee ? [
          fact("Bandwidth", guarantee.bandwidth), fact("Burst", guarantee.burst),
          fact("Burst rate", guarantee.burst_rate ?? "not limited"), fact("Bursts", bursts(guarantee)),
          fact("Inward burst", guarantee.burst_in ?? "of all other machines"), fact("Delay", guarantee.delay ?? "not promised"),
          fact("Delay class", guarantee.class ?? "ordinary"),
        ] : fact("Promise", "best effort"),
        standing.measured && [h("dt", null, "Measured"), h("dd", { id: "tenant-measured" }, measured(standing, guarantee?.delay))],
        domains && fact("Spread", `at most ${Math.ceil(request.vms / domains.count)} in one ${["host", "rack", "pod"][domains.height] ?? `group of height ${domains.height}`}`),
        request.cpu > 0 && fact("CPUs", `${request.cpu / 1000} a machine`),
        request.memory && request.memory !== "0B" && fact("Memory", `${request.memory} a machine`)),
      h("p", { class: "actions" },
        h("label", null, "Machines ", number),
        button("Resize", () => this.#app.attempt(async () => {
          await this.#app.api.call("PATCH", `/v1/tenants/${id}`, { vms: Number(number.value) });
          await this.#app.changed();
        }), { id: "resize" }),
        button("Delete", () => this.#app.sure({
          title: `Delete ${owner}/${name}?`, text: `Its ${count(request.vms, "machine")} lose their guarantee, and their slots become free.`, yes: "Delete", danger: true,
        }, async () => {
          await this.#app.api.call("DELETE", `/v1/tenants/${id}`);
          this.#close();
          await this.#app.changed();
        }), { id: "delete" })),
      h("h3", null, "Bound of a pair"),
      this.#pairForm(),
      this.#machines(runs),
      h("div", { id: "bound", role: "status" }),
    );
  }

  #pairForm() {
    const most = Math.max(...this.#open.runs.map(({ first, count: many }) => first + many - 1));
    const input = (end, label) => h("label", null, label, h("input", {
      id: `pair-${label.toLowerCase()}`, type: "number", min: 0, max: most, value: this.#pair[end] ?? "",
      onchange: (event) => this.#choose(end, event.target.value === "" ? null : Number(event.target.value)),
    }));
    return h("div", null,
      h("p", { class: "actions" }, input(0, "From"), input(1, "To"),
        button("Swap", () => { this.#pair.reverse(); this.#pairChanged(); }, { id: "pair-swap" })),
      h("p", { class: "note" }, "Enter two numbers or select two machines below: the sender, then the receiver."));
  }

  #machines(runs) {
    let left = this.#all ? Infinity : FEW_MACHINES;
    const shown = runs.slice(0, this.#all ? runs.length : FEW_HOSTS);
    const rows = shown.map(({ first, count: many, host }) => {
      const numbers = Array.from({ length: Math.min(many, Math.max(0, left)) }, (_, index) => first + index);
      left -= numbers.length;
      return numbers.length > 0 && [
        this.#app.hasMap ? button(host, () => this.#app.openPlace(host), { class: "link" }) : host,
        h("div", { class: "machines" }, numbers.map((number) => button(number, () => this.#pick(number), {
          "data-machine": number, "aria-label": `machine ${number} on ${host}`, "aria-pressed": this.#pair.includes(number) ? "true" : "false",
          class: [number === this.#pair[0] && "from", number === this.#pair[1] && "to"].filter(Boolean).join(" "),
        }))),
      ];
    }).filter(Boolean);
    const some = shown.length < runs.length || left <= 0;
    return h("div", { id: "machines" }, table(null, ["host", "machines"], rows),
      some && !this.#all && button("Show all machines", () => { this.#all = true; this.#draw(); this.#pairChanged(); }, { id: "all-machines" }));
  }

  /** A click: the sender first, then the receiver, then from the start. */
  #pick(number) {
    const [from, to] = this.#pair;
    this.#pair = from === null || to !== null ? [number, null] : [from, number];
    this.#pairChanged();
  }

  #choose(end, number) {
    this.#pair[end] = number;
    this.#pairChanged();
  }

  #pairChanged() {
    for (const chosen of at("machines").querySelectorAll("[data-machine]")) {
      const number = Number(chosen.dataset.machine);
      chosen.classList.toggle("from", number === this.#pair[0]);
      chosen.classList.toggle("to", number === this.#pair[1]);
      chosen.setAttribute("aria-pressed", this.#pair.includes(number));
    }
    at("pair-from").value = this.#pair[0] ?? "";
    at("pair-to").value = this.#pair[1] ?? "";
    at("bound").replaceChildren();
    if (this.#pair.every((number) => number !== null)) this.#app.attempt(() => this.#bound());
  }

  async #bound() {
    const [from, to] = this.#pair;
    const { id } = this.#open;
    const bound = await this.#app.api.get(`/v1/tenants/${id}/bound`, { from, to });
    if (this.#open?.id !== id || this.#pair[0] !== from || this.#pair[1] !== to) return;
    at("bound").replaceChildren(...this.#pathOf(bound));
    await this.#mark(bound);
  }

  #pathOf({ from, to, from_host: here, to_host: there, promised, capacity, now, ports: list }) {
    const end = (number, host) => h("li", { class: "end" }, `${number} on ${host}`);
    const path = h("ol", { class: "path", "aria-label": "Queues on the path" }, end(from, here), list.map(({ name }) => h("li", null, name)), end(to, there));
    if (!list.length) return [path, h("p", null, "Both machines are on one host, without a queue between them.")];
    const [sum, least] = [nanos(capacity), nanos(now)];
    const kept = promised === undefined || sum <= nanos(promised);
    const scarce = Math.min(...list.map(({ headroom }) => headroom));
    const verdict = promised === undefined
      ? `At most ${time(sum)} in queues whatever other tenants come, ${time(least)} with the present tenants. No delay is promised.`
      : `At most ${time(sum)} in queues whatever other tenants come, ${time(least)} with the present tenants. Promised: ${promised}.`;
    return [
      h("p", { class: "verdict" }, promised !== undefined && h("span", { class: `tag ${kept ? "pass" : "fail"}` }, kept ? "holds" : "broken"), h("span", { id: "bound-text" }, verdict)),
      path,
      ports("Queues on the path", list, h("tr", null, h("th", { scope: "row" }, "sum"), h("td", null, `least ${percent(scarce)}`), h("td"), h("td", null, `${time(least)} of ${time(sum)}`), h("td", null, promised === undefined ? "" : `promised ${promised}`))),
    ];
  }
}
