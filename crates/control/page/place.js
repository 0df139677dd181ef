// One host, rack or pod: its ports, who is there, and taking it out of service.

import { at, bar, button, h, table } from "./dom.js";
import { bytes, count, kind, percent, rate, step, time } from "./units.js";
import { part } from "./api.js";

const ACTIONS = {
  drain: { title: "Drain", text: "gets no more machines; those there stay until they are moved or deleted" },
  fail: { title: "Fail", text: "is marked as broken, and with it the machines there" },
  restore: { title: "Restore", text: "gets machines again" },
};

/** Ports as a table: of a place, or of a path. */
export function ports(caption, list, foot) {
  const rows = list.map((port) => [
    port.name,
    h("span", { "data-headroom": port.headroom }, percent(port.headroom)),
    [`${rate(port.reserved_bit_s)} of ${rate(port.rate_bit_s)}`, bar(port.reserved_bit_s / port.rate_bit_s, step(port.headroom))],
    [`${time(port.bound_ns)} of ${time(port.capacity_ns)}`, bar(port.bound_ns / port.capacity_ns, step(port.headroom))],
    `${bytes(port.backlog_bytes)} of ${bytes(port.room_bytes)}`,
  ]);
  const element = table(caption, ["port", "headroom", "rate reserved", "bound of capacity", "queue at worst"], rows, { class: "ports" });
  if (foot) element.querySelector("table").append(h("tfoot", null, foot));
  return element;
}

/** How long ago a second since 1970 was. */
function ago(second) {
  const minutes = Math.max(0, Math.floor((Date.now() / 1000 - second) / 60));
  if (minutes < 1) return "less than a minute";
  if (minutes < 120) return count(minutes, "minute");
  return minutes < 2880 ? count(Math.floor(minutes / 60), "hour") : count(Math.floor(minutes / 1440), "day");
}

/** What a host said of its guarantees. */
export function following({ following: word, revision, silent_since: silent, limits, refused, unpromised }) {
  const kind = { follows: "pass", refuses: "fail", silent: "fail" }[word] ?? "";
  const whole = word === "unheard" ? "it has never reported"
    : [silent !== undefined && `for ${ago(silent)}`, `revision ${revision}`, limits ? `keeps ${limits.link} in all` : "nothing paces its uplink"].filter(Boolean).join(", ");
  return [
    h("dt", null, "Guarantees"), h("dd", { id: "place-following" }, h("span", { class: `tag ${kind}` }, word), ` ${whole}`,
      (refused ?? []).map(({ tenant, why }) => h("div", { class: "problem" }, tenant === undefined ? why : `tenant ${tenant}: ${why}`)),
      (unpromised ?? []).map(({ guest, what }) => h("div", { class: "problem" }, `beyond what is promised: ${guest}: ${what}`))),
  ];
}

/** What is reserved of a host's CPU, and what it keeps; nothing where there is neither. */
function cpu({ reserved_cpu: reserved, said: { cpu: keeps } }) {
  if (!keeps && !reserved.threads) return null;
  const cpus = (thousandths) => (thousandths / 1000).toFixed(3);
  // What guests have that nobody promised them is not to be had.
  const left = (of) => Math.max(0, (of === "cpu" ? keeps.reservable : keeps.threads) - (keeps.unpromised?.[of] ?? 0));
  const short = !keeps || reserved.cpu > left("cpu") || reserved.threads > left("threads");
  const text = keeps
    ? `${cpus(reserved.cpu)} of ${cpus(left("cpu"))} CPUs, for ${reserved.threads} of ${count(left("threads"), "vCPU")}`
    : `${cpus(reserved.cpu)} CPUs, and it keeps none`;
  return [
    h("dt", null, "CPU reserved"), h("dd", { id: "place-cpu", class: short ? "problem" : "" }, text,
      keeps && left("cpu") > 0 && bar(Math.min(1, reserved.cpu / left("cpu")))),
  ];
}

/** Where machines are, in a few words. */
export const places = (list) => list.map(({ host, vms }) => `${host} (${vms})`).join(", ");

export class Place {
  #app;
  #name = null;
  /** The last answer of a drain, failure or return, shown with the node it is about. */
  #change = null;

  constructor(app) { this.#app = app; }

  get name() { return this.#name; }

  async show(name) {
    if (this.#change?.node !== name) this.#change = null;
    this.#name = name;
    await this.refresh();
  }

  async refresh() {
    const name = this.#name;
    if (!name) return;
    const node = await this.#app.api.get("/v1/map", { node: name, depth: 0 });
    const host = node.height === 0 ? await this.#app.api.get(`/v1/hosts/${part(name)}`) : null;
    if (name === this.#name) this.#draw(node, host);
  }

  #draw(node, host) {
    const state = node.state ?? "mixed";
    const actions = node.name === "core" ? [] : Object.entries(ACTIONS)
      .filter(([action]) => ({ drain: state !== "drained", fail: state !== "failed", restore: state !== "open" })[action])
      .map(([action, { title }]) => button(title, () => this.#sure(action, node), { id: action }));
    const shown = [
      h("div", { class: "line" }, h("h2", { id: "place-name" }, `${kind(node.height, node.name)} ${node.name === "core" ? "" : node.name}`),
        h("span", { id: "place-state", class: `tag ${state === "open" ? "pass" : state === "failed" ? "fail" : ""}` }, state === "mixed" ? "partly closed" : state),
        host && host.path.length > 0 && h("span", { class: "soft" }, `in ${host.path.join(", ")}`)),
      h("dl", { class: "facts" },
        h("dt", null, "Slots"), h("dd", { id: "place-slots" }, `${node.used} of ${node.slots} taken`, bar(node.used / node.slots)),
        node.height > 0 && [h("dt", null, "Hosts"), h("dd", null, node.hosts)],
        h("dt", null, "Headroom"), h("dd", null, node.height > 0 ? `${percent(node.least)} at the scarcest port here or below` : `${percent(node.headroom)} at its scarcer port`),
        node.height > 0 && node.troubled > 0 && [h("dt", null, "Guarantees"), h("dd", { id: "place-following" }, `${count(node.troubled, "host")} ${node.troubled === 1 ? "refuses guarantees or is" : "refuse guarantees or are"} silent`)],
        host && cpu(host),
        host && following(host.said)),
      node.ports && ports("The two queues of its link. Bound: the longest wait of a frame with the present tenants.", node.ports),
      actions.length > 0 && h("p", { class: "actions" }, actions),
      this.#affected(),
      host && this.#machines(host),
    ];
    at("place").replaceChildren(...shown.filter(Boolean));
  }

  #machines({ vms }) {
    if (!vms) return h("p", { class: "soft" }, "No machines here.");
    return table("Machines here", ["tenant", "numbers"], vms.map(({ tenant, owner, name, first, count: many }) => [
      button(`${owner}/${name}`, () => this.#app.openTenant(tenant), { class: "link", "data-tenant": tenant }),
      many === 1 ? first : `${first} to ${first + many - 1}`,
    ]), { id: "place-machines" });
  }

  #sure(action, { name, hosts, used }) {
    const { title, text } = ACTIONS[action];
    const what = hosts === 1 ? name : `${name}, ${count(hosts, "host")},`;
    const now = action === "restore" ? "" : ` ${used === 1 ? "1 machine is" : `${used} machines are`} there now. Which tenants that affects, and where they would fit, is shown next.`;
    this.#app.sure({ title: `${title} ${name}?`, text: `${what} ${text}.${now}`, yes: title, danger: action === "fail" }, async () => {
      this.#change = await this.#app.api.post(`/v1/hosts/${part(name)}/${action}`);
      await this.#app.changed();
    });
  }

  #affected() {
    if (!this.#change) return null;
    const { node, state, hosts, affected } = this.#change;
    const said = `${node}: ${hosts === 1 ? "the host is" : `${count(hosts, "host")} are`} ${state}.`;
    if (!affected.length) return h("p", { id: "affected", role: "status" }, said, " ", state === "open" ? "" : "No tenant is affected.");
    return h("div", { id: "affected" },
      h("p", { role: "status" }, said, ` ${count(affected.length, "tenant")} affected:`),
      table(null, ["tenant", "machines here", "would fit", ""], affected.map(({ tenant, owner, name, lost, refit, refusal }) => [
        button(`${owner}/${name}`, () => this.#app.openTenant(tenant), { class: "link", "data-tenant": tenant }),
        lost,
        refit.length ? places(refit) : refusal ?? "nowhere",
        refit.length ? button("Relocate", () => this.#app.attempt(async () => {
          const moved = await this.#app.api.post(`/v1/tenants/${tenant}/relocate`);
          this.#change.affected = affected.filter((other) => other.tenant !== tenant);
          await this.#app.changed();
          await this.#app.openTenant(moved.id);
        }), { "data-relocate": tenant }) : "",
      ])));
  }
}
