// Starts here: one `App` holds the parts together, watches the service and asks for the token.

import { Api, token } from "./api.js";
import { at, h } from "./dom.js";
import { MapView } from "./map.js";
import { Place } from "./place.js";
import { RequestForm } from "./request.js";
import { Reservations } from "./reservations.js";
import { Tenants } from "./tenants.js";
import { count } from "./units.js";

/** How often the service is asked whether something changed. */
const EVERY_MS = 2000;
const TABS = ["request", "tenants", "reservations", "place"];

class App {
  api = new Api();
  /** Tenants see no map. */
  hasMap = false;
  #map;
  #tenants;
  #reservations;
  #place;
  #revision = null;
  #asking = null;
  #updating = null;
  #watching = false;

  constructor() {
    at("sign-out").hidden = !token.get();
    this.api.onUnauthenticated = (why, sent) => this.#askToken(why, sent);
    this.#map = new MapView(this.api, {
      choose: (name) => this.openPlace(name, false),
      zoom: (name) => { location.hash = name === "core" ? "" : `node=${encodeURIComponent(name)}`; },
    });
    this.#tenants = new Tenants(this);
    this.#reservations = new Reservations(this);
    this.#place = new Place(this);
    new RequestForm(this);
    for (const tab of TABS) at(`tab-${tab}`).addEventListener("click", () => this.showTab(tab));
    at("tabs").addEventListener("keydown", (event) => this.#turnTab(event));
    at("sign-out").addEventListener("click", () => { token.forget(); location.reload(); });
    at("find").addEventListener("submit", (event) => {
      event.preventDefault();
      this.attempt(() => this.#find(at("find").elements.host.value.trim()));
    });
    addEventListener("hashchange", () => this.attempt(() => this.#zoom()));
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.#watch(); });
  }

  async start() {
    await this.#watch();
    setInterval(() => { if (!document.hidden) this.#watch(); }, EVERY_MS);
  }

  /** Asks for the status, and for all else if something changed. */
  async #watch() {
    if (this.#watching) return;
    this.#watching = true;
    try {
      const status = await this.api.get("/v1/status");
      this.#status(status);
      if (this.#revision === null) await this.#first();
      if (status.revision !== this.#revision) {
        this.#revision = status.revision;
        await this.#update();
      }
      this.#connected(true);
    } catch (problem) {
      this.#connected(false, problem);
    } finally {
      this.#watching = false;
    }
  }

  /** An operator gets the map; others work without. */
  async #first() {
    try {
      await this.#map.show(this.#hashNode());
      this.hasMap = true;
    } catch (problem) {
      if (problem.status === 404 && this.#hashNode() !== "core") {
        location.hash = "";
        return this.#first();
      }
      if (problem.status !== 403) throw problem;
    }
    at("map-section").hidden = !this.hasMap;
    at("tab-place").hidden = !this.hasMap;
    document.querySelector("main").classList.toggle("no-map", !this.hasMap);
    for (const label of document.querySelectorAll(".operator")) label.hidden = !this.hasMap;
    document.querySelector("main").hidden = false;
    return undefined;
  }

  /** Loads what is shown, once at a time. */
  async #update() {
    this.#updating ??= Promise.all([
      this.hasMap ? this.#map.show(this.#map.root) : null,
      this.#tenants.refresh(),
      this.#reservations.refresh(),
      this.hasMap ? this.#place.refresh() : null,
    ]).finally(() => { this.#updating = null; });
    await this.#updating;
  }

  #hashNode() { return new URLSearchParams(location.hash.slice(1)).get("node") ?? "core"; }

  async #zoom() {
    if (this.hasMap) await this.#map.show(this.#hashNode());
  }

  /** Shows the rack of a host, or what a rack or pod is in, and the place itself. */
  async #find(name) {
    if (!name) return;
    const { [name]: path } = await this.api.get("/v1/map/paths", { names: name });
    if (!path) throw Object.assign(new Error(), { detail: `There is no host, rack or pod "${name}".` });
    const around = path[0] ?? "core";
    location.hash = around === "core" ? "" : `node=${encodeURIComponent(around)}`;
    await this.#map.show(around);
    await this.openPlace(name, false);
  }

  #status({ version, role, policy, tenants, pending, degraded, hosts, open_hosts: open, slots, used }) {
    const facts = [
      ["Slots", `${used.toLocaleString("en")} of ${slots.toLocaleString("en")} (${slots ? Math.round((used / slots) * 100) : 0} %)`],
      ["Hosts", open === hosts ? hosts.toLocaleString("en") : `${open.toLocaleString("en")} of ${hosts.toLocaleString("en")} open`],
      ["Tenants", tenants.toLocaleString("en")], ["Degraded", degraded.toLocaleString("en")], ["Pending", pending.toLocaleString("en")], ["Policy", policy], ["Replica", role], ["Version", version],
    ];
    at("status").replaceChildren(...facts.map(([term, text]) => h("div", { "data-fact": term.toLowerCase(), class: term === "Degraded" && degraded ? "wrong" : undefined }, h("dt", null, term), h("dd", null, text))));
  }

  #connected(live, problem) {
    const text = live ? "live" : "away";
    if (at("connection").className !== text) {
      at("connection").className = text;
      at("connection").textContent = live ? "live" : `not updated since ${new Date().toLocaleTimeString()}`;
    }
    if (live && at("alert").dataset.from === "watch") this.say(null);
    if (!live) this.say(problem.detail ?? String(problem), "watch");
  }

  /** Says what went wrong above all; `null` takes it away. */
  say(text, from = "action") {
    const box = at("alert");
    box.hidden = !text;
    box.dataset.from = from;
    if (box.textContent !== text) box.textContent = text ?? "";
  }

  /** Does what somebody clicked on; what goes wrong is said. */
  async attempt(action) {
    try {
      const result = await action();
      this.say(null);
      return result;
    } catch (problem) {
      this.say(problem.detail ?? String(problem));
      return undefined;
    }
  }

  /** After a change by this page: shows it now, not at the next look. */
  async changed() {
    if (this.#updating) await this.#updating;
    const status = await this.api.get("/v1/status");
    this.#revision = status.revision;
    this.#status(status);
    await this.#update();
  }

  openTenant(id) { return this.attempt(() => this.#tenants.open(id)); }

  /** Shows a place beside the map. */
  openPlace(name, turn = true) {
    this.showTab("place");
    this.#map.select(name);
    if (turn) at("tab-place").focus();
    return this.attempt(() => this.#place.show(name));
  }

  markTenant(tenant) { return this.#tenants.mark(tenant); }

  async mark(marks) { if (this.hasMap) await this.#map.mark(marks); }

  showTab(name) {
    for (const tab of TABS) {
      at(`tab-${tab}`).setAttribute("aria-selected", tab === name);
      at(`tab-${tab}`).tabIndex = tab === name ? 0 : -1;
      at(`panel-${tab}`).hidden = tab !== name;
    }
  }

  #turnTab(event) {
    const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!turn) return;
    const open = TABS.filter((tab) => !at(`tab-${tab}`).hidden);
    const now = open.findIndex((tab) => at(`tab-${tab}`).getAttribute("aria-selected") === "true");
    const next = open[(now + turn + open.length) % open.length];
    this.showTab(next);
    at(`tab-${next}`).focus();
    event.preventDefault();
  }

  /** Asks before something that cannot be taken back; then does it. */
  sure({ title, text, yes, danger }, action) {
    const dialog = at("sure");
    at("sure-title").textContent = title;
    at("sure-text").textContent = text;
    at("sure-yes").textContent = yes;
    at("sure-yes").classList.toggle("danger", Boolean(danger));
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => { if (dialog.returnValue === "yes") this.attempt(action); }, { once: true });
    dialog.showModal();
  }

  /** Asks for a token once for all calls that need one. A call with an older token tries again. */
  #askToken(why, sent) {
    if (token.get() !== sent) return Promise.resolve();
    this.#asking ??= new Promise((done) => {
      const dialog = at("token");
      at("token-why").textContent = sent ? `The service refused the token: ${why}.` : "The operator of this service creates tokens: tailbound place token.";
      at("token-text").value = "";
      // The page shows nothing without a token, so the dialog stays.
      dialog.oncancel = (event) => event.preventDefault();
      dialog.onclose = () => {
        token.set(at("token-text").value.trim());
        at("token-text").value = "";
        this.#asking = null;
        at("sign-out").hidden = false;
        done();
      };
      dialog.showModal();
    });
    return this.#asking;
  }
}

new App().start();
