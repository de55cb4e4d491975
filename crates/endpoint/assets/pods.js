// Tables: victims, aggressors, and the matrix of both.

import { NONE, Selection, cores, h, meter, percent, podName, seconds, setText, step, strips } from "./draw.js";
import { culpritName, get, keyOf, lost, matches, pairKey, verdicts } from "./data.js";

/** Rows shown before a button offers the rest. */
const SHOWN = 60;
const MATRIX = 12;

const used = (row) => row.limitCores ? (row.usageCores ?? 0) / row.limitCores : row.usageCores ?? 0;

/** Columns of the victims: label, unit, explanation, value to sort by. Those with `known` are hidden while no row has a value. */
export const COLUMNS = [
  { id: "name", label: "Pod", text: true, help: "Namespace, pod and container. Worst first: slowed pods in the order of the verdicts, then by the time lost to limits, neighbors and the system in the last five seconds." },
  { id: "minute", label: "Last minute", unit: "order: verdict", text: true, wide: true, help: "Time lost in each of the last 60 seconds, the newest at the right. Gray none, yellow below 20 %, orange below 50 %, red above, darkest from 100 %." },
  { id: "use", label: "Used / limit", unit: "cores", help: "CPU used in this second, and the lowest limit that applies to the container or to a cgroup above it. The bar turns orange at 90 % of the limit.", by: used },
  { id: "throttledShare", group: "Throttled", label: "Own", unit: "of the time", help: "Share of the time in which its own CPU limit stopped it. Raising or removing the limit ends this.", by: (row) => row.throttledShare ?? 0 },
  { id: "throttledAncestor", group: "Throttled", label: "Above", unit: "of the time", help: "Share of the time in which a limit of the pod or of a cgroup above it stopped it, summed over CPUs.", by: (row) => row.throttledAncestor ?? 0 },
  { id: "gc", label: "GC", unit: "share of its CPU", help: "Share of its CPU time that the garbage collector took in the last ten seconds, and cycles per second below. Read from Go 1.20 with --gc=on.", by: (row) => row.gc?.cpuShare ?? 0, known: (row) => row.gc?.cpuShare !== undefined },
  { id: "neighbor", group: "Waited", label: "Others", unit: "of the time", help: "Its threads were ready to run, but other pods were running on the CPU. Summed over threads: it can exceed 100 %.", by: (row) => row.neighbor ?? 0 },
  { id: "self", group: "Waited", label: "Self", unit: "of the time", help: "Its threads waited while other threads of the same pod were running: more threads than CPUs.", by: (row) => row.self ?? 0 },
  { id: "system", group: "Waited", label: "System", unit: "of the time", help: "Its threads waited while processes outside the pods were running: kubelet, runtime, kernel.", by: (row) => row.system ?? 0 },
  { id: "smt", label: "SMT", unit: "of the time", help: "It was running while another pod used the core's other thread, which makes both slower.", by: (row) => row.smt ?? 0, known: (row) => row.smt !== undefined },
  { id: "aggressor", label: "Slowed by", text: true, help: "The verdict about the pod: its cause has at least half of all the time that the pod lost, and the CPUs would have had room without it. Empty for a pod that is not slowed." },
];

function head(columns, sort, onsort) {
  return h("thead", null, h("tr", null, columns.map((column) => {
    const label = h("button", { type: "button", title: column.help, onclick: () => onsort(column) }, column.group ? h("small", null, column.group) : null, h("span", { class: column.id === "minute" ? "minute" : null }, column.label), h("small", null, column.unit ?? "\u00a0"));
    return h("th", { scope: "col", class: column.text ? "text" : column.known ? column.id : null, "aria-sort": sort === column.id ? "descending" : null }, label);
  })));
}

/** A number with its color: gray if zero, strong if much. `much` is a value that deserves attention. */
function level(cell, value, much) {
  cell.classList.toggle("zero", !(value > 0.0005));
  cell.classList.toggle("some", value >= much / 4 && value < much);
  cell.classList.toggle("high", value >= much);
}

const classes = (column) => [column.text && "text", column.known && column.id, column.id === "name" && "name", column.wide && "wide", ["aggressor", "worst"].includes(column.id) && "by"].filter(Boolean).join(" ");

/** Label of a column without its neighbors: `Throttled, own`. */
export const fullLabel = (column) => column.group ? `${column.group}, ${column.label.toLowerCase()}` : column.label;

/** The first verdict without its figures, which change every second. */
export function headline(frame) {
  const [first] = frame.verdicts ?? [];
  return first ? `${podName(first.victim)} is slowed by ${causeOf(first)}.` : "No pod is slowed.";
}

/** Link to the pod of a name; `null` if it has no container in the frame. */
function link(frame, name) {
  const row = frame?.containers.find((candidate) => pairKey(candidate) === pairKey(name));
  return row ? h("a", { class: "pod", href: `#pod/${encodeURIComponent(row.uid)}`, title: podName(name) }, h("bdi", null, name.pod)) : null;
}

/** A pod with the time of its pair, in two lines. */
class Named {
  constructor(cell) {
    this.cell = cell;
    this.pod = h("bdi", { class: "pod" });
    this.sub = h("bdi", { class: "sub" });
    cell.append(this.pod, this.sub);
  }

  set(name, wait) {
    setText(this.pod, name ? name.pod || podName(name) : NONE);
    setText(this.sub, name ? `${percent(wait)} of the time${name.pod && name.namespace ? ` · ${name.namespace}` : ""}` : "");
    this.cell.title = name ? podName(name) : "";
    this.cell.classList.toggle("zero", !name);
  }
}

/** How many times longer the work of a slowed pod took, at most 100. */
const factor = (verdict) => Math.min(100, 1 / Math.max(0.01, 1 - verdict.share));

const OWN = { own_limit: "its own limit", ancestor_limit: "a limit above", self: "its own threads" };

/** The cause of a verdict in a few words. */
function causeOf(verdict) {
  if (verdict.cause === "one" && verdict.culprits.length) return culpritName(verdict.culprits[0]);
  return verdict.cause === "several" ? "several" : OWN[verdict.reason] ?? "unknown";
}

/** A row of the victims, updated in place. */
class Victim {
  constructor(open) {
    this.pod = h("bdi");
    this.link = h("a", { class: "pod" }, this.pod);
    this.sub = h("bdi", { class: "sub" });
    this.use = h("span", null);
    this.bar = meter();
    this.canvas = h("canvas", { class: "strip" });
    this.cells = Object.fromEntries(COLUMNS.map((column) => [column.id, h("td", { class: classes(column), "data-label": fullLabel(column) })]));
    this.cells.name.append(this.link, this.sub);
    this.cells.use.append(h("span", { class: "use" }, this.use, this.bar.element));
    this.cells.minute.append(this.canvas);
    this.gc = h("span", null);
    this.cycles = h("span", { class: "sub" });
    this.cells.gc.append(this.gc, this.cycles);
    this.cause = h("bdi", { class: "pod" });
    this.factor = h("span", { class: "sub" });
    this.cells.aggressor.append(this.cause, this.factor);
    this.element = h("tr", { onclick: (event) => { if (!event.target.closest("a")) open(this.uid); } }, Object.values(this.cells));
  }

  update(row, verdict, heat, trace) {
    this.uid = row.uid;
    this.element.dataset.key = keyOf(row);
    this.link.setAttribute("href", `#pod/${encodeURIComponent(row.uid)}`);
    setText(this.pod, row.pod);
    this.link.title = podName(row);
    setText(this.sub, [row.namespace, row.container].filter(Boolean).join(" · "));
    setText(this.use, row.limitCores ? `${cores(row.usageCores)} / ${cores(row.limitCores)}` : cores(row.usageCores));
    this.bar.set(row.limitCores ? used(row) : 0, row.limitCores && used(row) >= 0.9);
    this.bar.element.hidden = !row.limitCores;
    setText(this.cells.throttledShare, percent(row.throttledShare));
    level(this.cells.throttledShare, row.throttledShare, 0.25);
    for (const id of ["throttledAncestor", "neighbor", "self", "system", "smt"]) {
      setText(this.cells[id], percent(row[id]));
      level(this.cells[id], row[id], id === "self" || id === "smt" ? Infinity : 0.2);
      this.cells[id].title = row[id] === undefined ? `not known${trace.reason ? `: ${trace.reason}` : ""}` : "";
    }
    setText(this.gc, percent(row.gc?.cpuShare));
    setText(this.cycles, row.gc?.cycles > 0.005 ? `${row.gc.cycles.toFixed(row.gc.cycles < 1 ? 2 : 1)} per s` : "");
    level(this.cells.gc, row.gc?.cpuShare, 0.25);
    setText(this.cause, verdict ? causeOf(verdict) : NONE);
    setText(this.factor, verdict ? `×${factor(verdict).toFixed(1)} · ${Math.round(verdict.slowedSeconds)} s of the last minute` : "");
    this.cells.aggressor.title = verdict ? `${verdict.summary}. ${verdict.remedy}` : "";
    this.cells.aggressor.classList.toggle("zero", !verdict);
    this.heat = heat ?? [];
  }
}

/** The table of victims. */
export class Victims {
  rows = new Map();
  filter = "";
  sort = "lost";
  all = false;

  constructor(store, open) {
    this.store = store;
    this.open = open;
    this.input = h("input", { type: "search", placeholder: "Filter by name ( / )", "aria-label": "Filter by name", title: "All words must match, and none after ! or -", oninput: () => { this.filter = this.input.value.toLowerCase(); this.selection.at = 0; this.update(); } });
    this.count = h("span", { class: "count", role: "status" });
    this.victim = h("bdi");
    this.verdict = h("span");
    this.headline = h("p", { class: "headline" }, this.victim, this.verdict);
    this.body = h("tbody");
    this.selection = new Selection(this.body);
    this.table = h("table", { class: "list" });
    this.more = h("button", { type: "button", class: "more", hidden: true, onclick: () => { this.all = true; this.update(); } });
    this.empty = h("p", { class: "empty", hidden: true }, "No container matches.");
    this.element = h("section", { "aria-label": "Victims" }, h("h1", { class: "unseen" }, "Victims"), this.headline, h("div", { class: "tools" }, this.input, this.count), h("div", { class: "panel" }, h("div", { class: "scroll" }, this.table), this.empty, this.more));
    this.setSort("lost");
  }

  setSort(id) {
    this.sort = id === this.sort ? "lost" : id;
    const top = head(COLUMNS, this.sort === "lost" ? "minute" : this.sort, (column) => { this.setSort(column.id === "minute" ? "lost" : column.id); this.update(); });
    // The rows stay in the page: a row that has the focus would lose it.
    if (this.table.tHead) this.table.tHead.replaceWith(top);
    else this.table.append(top, this.body);
  }

  /** Sorts by the next column. */
  cycle() {
    const ids = ["lost", ...COLUMNS.filter((column) => column.by && !this.table.classList.contains(`no-${column.id}`)).map((column) => column.id)];
    this.setSort(ids[(ids.indexOf(this.sort) + 1) % ids.length]);
    this.update();
  }

  #sorted(frame) {
    const name = (row) => `${row.namespace}/${row.pod} ${row.container}`;
    const rows = frame.containers.filter((row) => matches(name(row).toLowerCase(), this.filter));
    const byName = (a, b) => name(a) < name(b) ? -1 : 1;
    if (this.sort === "name") return rows.sort(byName);
    const judged = verdicts(frame);
    const place = (row) => judged.get(keyOf(row))?.place ?? Infinity;
    const column = COLUMNS.find((candidate) => candidate.id === this.sort);
    const value = column?.by ?? ((row) => this.store.recent(keyOf(row)) || lost(row));
    const byVerdict = (a, b) => (column?.by || place(a) === place(b) ? 0 : place(a) - place(b));
    return rows.map((row) => [value(row), row]).sort((a, b) => byVerdict(a[1], b[1]) || b[0] - a[0] || byName(a[1], b[1])).map(([, row]) => row);
  }

  update() {
    const frame = this.store.frame;
    if (!frame) return;
    setText(this.table.querySelector(".minute"), this.store.stripLabel);
    for (const { id, known } of COLUMNS) if (known) this.table.classList.toggle(`no-${id}`, !frame.containers.some(known));
    const sorted = this.#sorted(frame);
    const judged = verdicts(frame);
    const [first] = frame.verdicts ?? [];
    setText(this.victim, first ? podName(first.victim) : "");
    setText(this.verdict, first ? ` is ${first.summary}` : "No pod is slowed.");
    this.headline.title = first?.remedy ?? "";
    const shown = this.all ? sorted : sorted.slice(0, SHOWN);
    const elements = shown.map((row) => {
      const key = keyOf(row);
      if (!this.rows.has(key)) this.rows.set(key, new Victim(this.open));
      const victim = this.rows.get(key);
      victim.update(row, judged.get(key)?.verdict, this.store.heat.get(key), frame.node.trace);
      return victim.element;
    });
    // Rows keep their element; one that is moved loses the focus.
    this.selection.update(() => {
      elements.forEach((element, at) => { if (this.body.children[at] !== element) this.body.insertBefore(element, this.body.children[at] ?? null); });
      while (this.body.children.length > elements.length) this.body.lastElementChild.remove();
    });
    strips(shown.map((row) => this.rows.get(keyOf(row))).map(({ canvas, heat }) => [canvas, heat]));
    if (this.rows.size > 2 * sorted.length + 100) {
      const live = new Set(frame.containers.map(keyOf));
      for (const key of this.rows.keys()) if (!live.has(key)) this.rows.delete(key);
    }
    setText(this.count, `${sorted.length} of ${frame.containers.length} containers`);
    this.more.hidden = shown.length === sorted.length;
    setText(this.more, `Show the other ${sorted.length - shown.length}`);
    this.empty.hidden = sorted.length > 0;
  }
}

const AGGRESSORS = [
  { id: "name", label: "Pod", text: true, help: "The pod that was running while others waited." },
  { id: "harm", label: "Others wait", unit: "of the time", help: "Share of the time in which other pods waited because this one was running, summed over threads.", by: (pod) => pod.harm },
  { id: "use", label: "Used", unit: "cores", help: "CPU used by the pod in this second.", by: (pod) => pod.use ?? 0 },
  { id: "victims", label: "Victims", unit: "pods", help: "Pods that waited because of this one in this second.", by: (pod) => pod.victims },
  { id: "worst", label: "Worst victim", text: true, help: "The pod that waited longest because of this one.", by: (pod) => pod.worst.wait },
  { id: "minute", label: "Last minute", text: true, wide: true, help: "Share of the time that others waited in each of the last 60 seconds.", by: (pod) => pod.minute.reduce((sum, wait) => sum + (wait ?? 0), 0) },
];

/** Why nothing is known about pairs; empty if it is. */
const unknown = (frame) => frame?.node.trace.mode === "off" ? `Causes of waits are not known: ${frame.node.trace.reason || "the scheduler trace is off"}.` : "";

/** Pods by the harm that they do: the victims turned round. */
export class Aggressors {
  constructor(store) {
    this.store = store;
    this.body = h("tbody");
    this.selection = new Selection(this.body);
    this.table = h("table", { class: "list" });
    this.empty = h("p", { class: "empty", hidden: true });
    this.element = h("section", { "aria-label": "Aggressors" }, h("h1", { class: "unseen" }, "Aggressors"), h("p", { class: "dim" }, "Pods that run while others are ready to run. Using CPU is not a fault: a pod within its request may still be an aggressor."),
      h("div", { class: "panel" }, h("div", { class: "scroll" }, this.table), this.empty));
    this.setSort("harm");
  }

  setSort(id) {
    this.sort = id;
    this.table.replaceChildren(head(AGGRESSORS, id, (column) => { this.setSort(column.id); this.update(); }), this.body);
  }

  /** Sorts by the next column. */
  cycle() {
    const ids = AGGRESSORS.map((column) => column.id);
    this.setSort(ids[(ids.indexOf(this.sort) + 1) % ids.length]);
    this.update();
  }

  update() {
    const frame = this.store.frame;
    if (!frame) return;
    setText(this.table.querySelector(".minute"), this.store.stripLabel);
    const pods = new Map();
    for (const pair of frame.interference) {
      const key = pairKey(pair.aggressor);
      const pod = pods.get(key) ?? { name: pair.aggressor, harm: 0, victims: 0, worst: pair };
      pod.harm += pair.wait; pod.victims += 1;
      if (pair.wait > pod.worst.wait) pod.worst = pair;
      pods.set(key, pod);
    }
    for (const [key, pod] of pods) {
      pod.containers = frame.containers.filter((row) => pairKey(row) === key);
      pod.use = pod.containers.length ? pod.containers.reduce((sum, row) => sum + (row.usageCores ?? 0), 0) : undefined;
      pod.minute = this.store.harm.get(key) ?? [];
    }
    const byName = (a, b) => podName(a.name) < podName(b.name) ? -1 : 1;
    const value = AGGRESSORS.find((column) => column.id === this.sort).by;
    const rows = [...pods.values()].sort((a, b) => (value ? value(b) - value(a) : 0) || byName(a, b));
    this.selection.update(() => this.body.replaceChildren(...rows.map((pod) => this.#row(frame, pod))));
    strips([...this.body.querySelectorAll("canvas")].map((canvas, at) => [canvas, rows[at].minute]));
    this.empty.hidden = rows.length > 0;
    setText(this.empty, unknown(frame) || `No pod made another one wait in this ${this.store.window ? "window" : "second"}.`);
  }

  #row(frame, pod) {
    const name = link(frame, pod.name) ?? h("bdi", { class: "pod" }, podName(pod.name));
    const cell = (at, ...content) => h("td", { class: classes(AGGRESSORS[at]), "data-label": fullLabel(AGGRESSORS[at]) }, ...content);
    const [harm, worst] = [cell(1, percent(pod.harm)), cell(4)];
    new Named(worst).set(pod.worst.victim, pod.worst.wait);
    level(harm, pod.harm, 0.2);
    return h("tr", { "data-key": pairKey(pod.name), onclick: (event) => { if (!event.target.closest("a") && name.href) name.click(); } }, cell(0, name, h("bdi", { class: "sub" }, pod.containers.length ? pod.name.namespace : "")), harm, cell(2, cores(pod.use)), cell(3, String(pod.victims)), worst, cell(5, h("canvas", { class: "strip" })));
  }
}

/** Victims and aggressors crossed, over a span. */
export class Matrix {
  span = 60;

  constructor(store) {
    this.store = store;
    this.table = h("table", { class: "matrix" });
    this.note = h("span", { class: "count" });
    this.empty = h("p", { class: "empty", hidden: true });
    const choose = h("select", { "aria-label": "Span", onchange: () => { this.span = Number(choose.value); this.update(true); } }, [[1, "second"], [60, "minute"], [300, "5 minutes"], [600, "10 minutes"]].map(([value, text]) => h("option", { value, selected: value === this.span }, `last ${text}`)));
    this.choose = choose;
    this.element = h("section", { "aria-label": "Matrix" }, h("h1", { class: "unseen" }, "Matrix of waits"), h("div", { class: "tools" }, choose, this.note), h("div", { class: "panel fitted" }, h("div", { class: "scroll" }, this.table), this.empty));
  }

  async update(force) {
    if (!force && this.busy) return;
    this.busy = true;
    const window = this.store.window;
    this.choose.hidden = Boolean(window);
    try {
      const pairs = await get(`interference?${window ? this.store.query() : `seconds=${this.span}`}`);
      if (window === this.store.window) this.#draw(pairs, window?.seconds ?? this.span);
    } catch (error) { setText(this.note, error.message); }
    this.busy = false;
  }

  #draw(pairs, span) {
    const top = (side) => {
      const sums = new Map();
      for (const pair of pairs) {
        const sum = sums.get(pairKey(pair[side])) ?? { name: pair[side], seconds: 0 };
        sum.seconds += pair.seconds;
        sums.set(pairKey(pair[side]), sum);
      }
      return [...sums].sort((a, b) => b[1].seconds - a[1].seconds);
    };
    const [victims, aggressors] = [top("victim"), top("aggressor")];
    const values = new Map(pairs.map((pair) => [`${pairKey(pair.victim)}\n\n${pairKey(pair.aggressor)}`, pair.seconds]));
    const columns = aggressors.slice(0, MATRIX);
    const label = ({ name }) => podName(name);
    const header = h("tr", null, h("th", { class: "corner" }, "waited ↓   while running →"), columns.map(([, pod]) => h("th", { scope: "col", title: label(pod) }, h("span", null, h("bdi", null, label(pod))))));
    const rows = victims.slice(0, MATRIX).map(([victim, pod]) => h("tr", null, h("th", { scope: "row", title: label(pod) }, link(this.store.frame, pod.name) ?? h("bdi", { class: "pod" }, pod.name.pod || label(pod)), h("bdi", { class: "sub" }, pod.name.pod ? pod.name.namespace : "")), columns.map(([aggressor, by]) => {
      const value = values.get(`${victim}\n\n${aggressor}`);
      return h("td", { class: value ? `heat-${step(value / span)}` : "zero", title: value ? `${label(pod)} waited ${seconds(value)} while ${label(by)} was running` : null }, value ? seconds(value) : "·");
    })));
    this.table.replaceChildren(h("thead", null, header), h("tbody", null, rows));
    this.table.hidden = !pairs.length;
    this.empty.hidden = pairs.length > 0;
    setText(this.empty, unknown(this.store.frame) || "No pod waited for another one in this time.");
    const more = Math.max(victims.length, aggressors.length) - MATRIX;
    setText(this.note, more > 0 ? `seconds waited, summed over threads; the worst ${MATRIX} of ${Math.max(victims.length, aggressors.length)} pods` : "seconds waited, summed over threads");
  }
}
