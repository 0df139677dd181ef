// The request form: fit, explain, create, and the answer in words and curves.

import { at, button, h, table } from "./dom.js";
import { chart } from "./chart.js";
import { count, summary } from "./units.js";

/** The fields that the form calls by another name than the service. */
const FIELDS = { cpu: "cpus", "domains.count": "domains", "domains.height": "height" };

/** What the service says of a form: the place in the JSON means nothing to who filled it in. */
function said({ detail, field }) {
  if (!field) return detail ?? "";
  const start = detail.indexOf(`${field}: `);
  return (start < 0 ? detail : detail.slice(start + field.length + 2)).replace(/ at line \d+ column \d+$/, "");
}

export class RequestForm {
  #app;
  #form = at("request");

  constructor(app) {
    this.#app = app;
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run(() => this.#create());
    });
    at("fit").addEventListener("click", () => this.#run(() => this.#ask("/v1/fit")));
    at("explain").addEventListener("click", () => this.#run(() => this.#ask("/v1/explain")));
    this.#form.elements.guaranteed.addEventListener("change", () => this.#toggle());
    this.#toggle();
  }

  #toggle() {
    for (const input of at("guarantee").querySelectorAll("input")) input.disabled = !this.#form.elements.guaranteed.checked;
  }

  #text(name) { return this.#form.elements[name].value.trim(); }

  /** What is in the form, as the service takes it. What is wrong with it, the service says best. */
  #request() {
    const request = { vms: Number(this.#text("vms")) };
    if (this.#form.elements.guaranteed.checked) {
      request.guarantee = { bandwidth: this.#text("bandwidth") };
      for (const field of ["burst", "delay", "burst_rate", "burst_in"]) if (this.#text(field)) request.guarantee[field] = this.#text(field);
      const bursts = this.#text("bursts");
      if (bursts) request.guarantee.bursts = /^\d+$/.test(bursts) ? Number(bursts) : bursts;
    }
    if (this.#text("cpus")) request.cpu = Math.round(Number(this.#text("cpus")) * 1000);
    if (this.#text("memory")) request.memory = this.#text("memory");
    if (this.#text("height")) request.domains = { height: Number(this.#text("height")), count: Number(this.#text("domains") || 2) };
    return request;
  }

  /** Puts a request into the form. Who asks for it stays. */
  fill({ vms, guarantee, cpu, memory, domains }) {
    const set = (name, value) => { this.#form.elements[name].value = value ?? ""; };
    set("vms", vms);
    this.#form.elements.guaranteed.checked = Boolean(guarantee);
    for (const field of ["bandwidth", "burst", "delay", "burst_rate", "bursts", "burst_in"]) if (guarantee) set(field, guarantee[field]);
    set("cpus", cpu ? cpu / 1000 : "");
    set("memory", memory && memory !== "0B" ? memory : "");
    set("height", domains?.height);
    set("domains", domains?.count);
    this.#toggle();
  }

  /** One thing at a time; what is wrong is said below the form. */
  async #run(action) {
    const buttons = [...this.#form.querySelectorAll(".actions button")];
    if (buttons.some(({ disabled }) => disabled)) return;
    for (const each of buttons) each.disabled = true;
    this.#unmark();
    this.#show(h("p", { class: "soft" }, "Asking."));
    try {
      await action();
    } catch (problem) {
      this.#mark(problem.field);
      this.#show(h("p", { class: "problem", id: "problem", "data-code": problem.code }, said(problem)));
    } finally {
      for (const each of buttons) each.disabled = false;
    }
  }

  /** Marks the field that is wrong, and goes there. */
  #mark(field) {
    const name = FIELDS[field] ?? field?.split(".").at(-1);
    const input = name && this.#form.elements.namedItem(name);
    if (!input) return;
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", "problem");
    input.focus();
  }

  #unmark() {
    for (const input of this.#form.querySelectorAll("[aria-invalid]")) {
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-describedby");
    }
  }

  #show(...what) { at("answer").replaceChildren(...what.flat().filter(Boolean)); }

  async #create() {
    const [owner, name] = [this.#text("owner"), this.#text("name")];
    const request = this.#request();
    let tenant;
    try {
      tenant = await this.#app.api.post("/v1/tenants", { ...(owner && this.#app.hasMap ? { owner } : {}), name, ...request });
    } catch (problem) {
      if (problem.code !== "refused") throw problem;
      await this.#ask("/v1/explain", problem.detail);
      return;
    }
    this.#show(h("p", { class: "verdict", id: "created", "data-tenant": tenant.id }, h("span", { class: "tag pass" }, "created"),
      h("span", null, button(`${tenant.owner}/${tenant.name}`, () => this.#app.openTenant(tenant.id), { class: "link" }), ` has ${count(request.vms, "machine")} on ${count(new Set(tenant.runs.map(({ host }) => host)).size, "host")}.`)));
    await this.#app.changed();
    await this.#app.markTenant(tenant);
  }

  /** Requests a decision without effect; `refused` is the answer to an earlier creation. */
  async #ask(path, refused) {
    const request = this.#request();
    const answer = await this.#app.api.post(path, request);
    if (answer.fits) await this.#fits(request, answer, refused);
    else await this.#refused(request, answer, path === "/v1/explain");
  }

  async #fits(request, { hosts }, refused) {
    const many = hosts.length;
    this.#show(
      h("p", { class: "verdict", id: "verdict", "data-fits": "true" }, h("span", { class: "tag pass" }, "fits"),
        h("span", null, refused ? "The service refused it a moment ago, and would admit it now. " : "", `${count(request.vms, "machine")} on ${count(many, "host")}; nothing is reserved yet.`)),
      table("Proposed hosts", ["host", "machines"], hosts.slice(0, 40).map(({ host, vms }) => [host, vms])),
      many > 40 && h("p", { class: "soft" }, `and ${count(many - 40, "host")} more`));
    await this.#app.mark({ text: `Proposed hosts of ${summary(request)}`, hosts: new Map(hosts.map(({ host, vms }) => [host, vms])) });
  }

  async #refused(request, { refusal, overload, nearest }, explained) {
    const cut = overload?.port.lastIndexOf(" ");
    this.#show(
      h("p", { class: "verdict", id: "verdict", "data-fits": "false" }, h("span", { class: "tag fail" }, "refused"), h("span", null, refusal ?? "No placement keeps all guarantees.")),
      overload && [
        h("p", { id: "overload", "data-port": overload.port }, overload.message),
        chart(overload),
      ],
      explained && [
        h("h3", null, "Nearest requests that pass"),
        nearest.length
          ? h("div", { class: "near", id: "nearest" }, nearest.map(({ change, request: changed }) => button(change, () => {
            this.fill(changed);
            this.#run(() => this.#ask("/v1/fit"));
          }, { "data-near": change })))
          : h("p", { class: "soft" }, "No change of a single parameter suffices."),
      ],
    );
    await this.#app.mark(overload && {
      text: `${overload.port} refuses ${summary(request)}`,
      ports: [{ node: overload.port.slice(0, cut), up: overload.port.slice(cut + 1) === "up", refused: true }],
    });
  }
}
