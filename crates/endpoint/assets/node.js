// The node: facts in the header, and the topology.

import { clock, dateTime, h, loadStep, percent, setText, zone } from "./draw.js";
import { get } from "./data.js";

/** The line below the header. `isRecording` adds the date. */
export function facts(element, frame, isRecording) {
  const busy = frame.node.cpus.map((cpu) => cpu.busy).filter((value) => value !== undefined);
  const list = [
    ["CPUs", `${frame.node.cpus.length}`, "Online CPUs"],
    ["busy", busy.length ? percent(busy.reduce((sum, value) => sum + value, 0) / busy.length) : null, "Mean load of the CPUs in this second"],
    ["CPU pressure", frame.node.pressure === undefined ? null : percent(frame.node.pressure), "Share of the time in which some thread waited for a CPU"],
    ["contention", frame.node.contention?.node ? range(frame.node.contention.node) : null, "Share of the time in which some thread of a Guaranteed or Burstable pod waited for a reason other than its own limit: at least and at most"],
    ["stolen", frame.node.steal > 0.0005 ? percent(frame.node.steal) : null, "Share of the time that the hypervisor gave to others, summed over CPUs"],
    ["containers", `${frame.containers.length}`, "Running containers of pods"],
    ["trace", frame.node.trace.mode, "Scheduler trace: without it, the causes of waits are not known"],
    ["at", isRecording ? dateTime(frame.atMs) : `${clock(frame.atMs)} ${zone()}`, "End of the second that is shown"],
    ["contention by class", classes(frame.node.contention), "Contention of the pods of each QoS class: at least and at most"],
  ].filter(([, value]) => value !== null);
  while (element.children.length > list.length) element.lastElementChild.remove();
  list.forEach(([label, value, title], at) => {
    const item = element.children[at] ?? element.appendChild(h("span", null, h("span"), " ", h("b")));
    item.title = title;
    setText(item.children[0], label);
    setText(item.children[1], value);
  });
}

/** Contention of each QoS class that is known; `null` without any. */
function classes(contention = {}) {
  const known = [["Guaranteed", contention.guaranteed], ["Burstable", contention.burstable], ["BestEffort", contention.bestEffort]].filter(([, bounds]) => bounds);
  // Lines break only between classes.
  const text = ([name, bounds]) => `${name} ${range(bounds)}`.replaceAll(" ", "\u00a0").replaceAll("–", "\u2060–\u2060");
  return known.length ? known.map(text).join(", ") : null;
}

/** Above this distance of the bounds, in points of percent, a range would say little. */
const WIDE = 30;
const range = ({ lower, upper }) => Math.round(100 * upper) - Math.round(100 * lower) > WIDE ? `at least ${percent(lower)}` : percent(lower) === percent(upper) ? percent(upper) : `${percent(lower).replace(" %", "")}–${percent(upper)}`;

/** Why the figures are less than they could be; empty if they are not. */
export function notice(frame) {
  const trace = frame.node.trace;
  if (trace.mode === "off") return `Waits are not traced on this node: ${trace.reason.replace(/^off: /, "") || "the trace has not started yet"}`;
  if (trace.mode === "bursts") return "The scheduler trace runs in bursts to stay within its budget: waits are estimates.";
  if (trace.mode === "detached") return `The scheduler trace is detached${trace.reason ? `: ${trace.reason}` : ""}. Waits are not measured now.`;
  return "";
}

const groups = (list, key) => {
  const map = new Map();
  for (const item of list) {
    const name = item[key] ?? null;
    if (!map.has(name)) map.set(name, []);
    map.get(name).push(item);
  }
  return [...map];
};

/** Owner of the CPUs of a recording. */
const UNKNOWN = "unknown";

export class Topology {
  constructor(store) {
    this.store = store;
    this.owners = h("ul", { class: "legend" });
    this.sockets = h("div", { class: "sockets" }, h("p", { class: "empty" }, "Loading …"));
    const loads = ["idle", "to 20 %", "to 40 %", "to 60 %", "to 80 %", "above"].map((text, at) => h("li", null, h("i", { class: `load-${at} cpu-key` }), text));
    this.element = h("section", { "aria-label": "Topology" }, h("h1", { class: "unseen" }, "Topology"), h("ul", { class: "legend" }, h("li", null, "Load of each thread:"), loads), this.owners, this.sockets);
  }

  async update() {
    if (this.busy) return;
    this.busy = true;
    try {
      // The structure changes rarely; the load comes with each frame.
      if (!this.topology || Date.now() - this.read > 5000) { this.topology = await get("topology"); this.read = Date.now(); }
      this.#draw();
    } catch (error) { this.sockets.replaceChildren(h("p", { class: "empty" }, error.message)); }
    this.busy = false;
  }

  #draw() {
    const load = new Map((this.store.frame?.node.cpus ?? []).map((cpu) => [cpu.cpu, cpu.busy]));
    const all = new Set(this.topology.cpus.map((cpu) => cpu.owner));
    const owners = [...all].filter((owner) => owner !== "share" && owner !== UNKNOWN).sort();
    const mark = (owner) => owners.includes(owner) ? (owners.indexOf(owner) % 5) + 1 : 0;
    const none = all.has(UNKNOWN) ? "The owners of CPUs are not known: a recording does not have them." : "All CPUs are in the shared pool.";
    this.owners.replaceChildren(...(owners.length ? [h("li", null, "Owner of CPUs outside the shared pool:"), ...owners.map((owner) => h("li", null, h("i", { class: `owner o-${mark(owner)}` }), h("bdi", null, owner)))] : [h("li", null, none)]));
    const cell = (cpu) => {
      const busy = load.get(cpu.cpu) ?? cpu.busy;
      return h("div", { class: `cpu load-${loadStep(busy)} o-${mark(cpu.owner)}`, title: `CPU ${cpu.cpu}: ${percent(busy)} busy${cpu.owner === UNKNOWN ? "" : `, ${cpu.owner}`}${cpu.kind ? `, ${cpu.kind} core` : ""}` }, h("b", null, `CPU ${cpu.cpu}`), percent(busy));
    };
    const cores = (cpus) => h("div", { class: "cores" }, groups(cpus, "core").map(([, threads]) => h("div", { class: "core" }, threads.map(cell))));
    const caches = (cpus) => groups(cpus, "l3").map(([cache, list]) => h("div", { class: "cache" }, h("h3", null, cache === null ? "no L3 cache" : `L3 cache ${cache}`), cores(list)));
    this.sockets.replaceChildren(...groups(this.topology.cpus, "socket").map(([socket, list]) => h("div", { class: "panel socket" }, h("h2", null, `Socket ${socket}`), h("div", { class: "nodes" }, groups(list, "numaNode").map(([node, cpus]) => h("div", { class: "numa" }, h("h3", null, `NUMA node ${node}`), h("div", { class: "caches" }, caches(cpus))))))));
  }
}
