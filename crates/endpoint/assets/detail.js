// One pod: its last minutes, its aggressors and victims, CPUs, runtime, and findings with the change.

import { NO_FINDINGS, change, command, evidence, severity, title as titleOf } from "./advice.js";
import { NONE, chart, clock, cores, cursor, described, h, meter, percent, podName, seconds, setText, ticks, zone } from "./draw.js";
import { get, pairKey } from "./data.js";

const CHARTS = [
  { title: "Used and limit", unit: "cores", lines: [["use", "usageCores", "used"], ["limit", "limitCores", "limit"]], format: cores, top: 0.05 },
  { title: "Throttled", unit: "of the time, summed over CPUs", lines: [["own", "throttledOwn", "by its own limit"], ["ancestor", "throttledAncestor", "by a limit above"]], format: percent, top: 0.01 },
  { title: "Waited", unit: "for whom: of the time, summed over threads", lines: [["neighbor", "neighbor", "others"], ["self", "self", "self"], ["system", "system", "system"], ["smt", "smt", "SMT"]], format: percent, top: 0.01 },
];
/** Shown instead of the causes where they are not known. */
const CONTENTION = { title: "Waited", unit: "at least, of the time, summed over threads; the cause is not known", lines: [["contention", "contention", "any cause"]], format: percent, top: 0.01 };

/** Spans that can be chosen, seconds. */
const SPANS = [[60, "last minute"], [300, "last 5 minutes"], [600, "last 10 minutes"]];
/** Number of colors for aggressors. */
const COLORS = 6;

export class Detail {
  span = 300;
  /** State of the view that outlives a drawing. */
  state = {};

  constructor(store) {
    this.store = store;
    const choose = h("select", { "aria-label": "Span", onchange: () => { this.span = Number(choose.value); this.update(true); } }, SPANS.map(([value, text]) => h("option", { value, selected: value === this.span }, text)));
    this.content = h("div");
    this.element = h("section", { "aria-label": "Pod" }, h("div", { class: "tools" }, h("a", { class: "back", href: "#pods" }, "← All pods"), this.choose = choose), this.content);
  }

  open(uid) {
    this.uid = uid;
    this.state = {};
    this.content.replaceChildren(h("p", { class: "empty" }, "Loading …"));
    this.update(true);
  }

  async update(force) {
    if (this.busy && !force) return;
    this.busy = true;
    const [uid, span, window] = [this.uid, this.span, this.store.window];
    const isCurrent = () => uid === this.uid && span === this.span && window === this.store.window;
    this.choose.hidden = Boolean(window);
    try {
      const pod = await get(`pods/${encodeURIComponent(uid)}?${window ? this.store.query(60) : `seconds=${span}`}`);
      if (isCurrent() && !this.#isSelecting()) this.#draw(pod);
    } catch (error) {
      if (isCurrent() && !this.content.querySelector("h1")) this.content.replaceChildren(h("p", { class: "empty" }, error.message));
      else if (isCurrent()) setText(this.note, `not updated: ${error.message}`);
    }
    this.busy = false;
  }

  /** Whether the user is about to copy text of this view. */
  #isSelecting() {
    const selection = document.getSelection();
    return !selection.isCollapsed && this.element.contains(selection.anchorNode);
  }

  #draw(pod) {
    this.note = h("span", { class: "warn" });
    const tags = [pod.qosClass, pod.cpuQos].filter(Boolean).map((text) => h("bdi", { class: "tag" }, text));
    const workload = pod.advice.find((report) => report.workload)?.workload;
    if (workload) tags.push(h("span", { class: "dim" }, `of ${workload.kind} `, h("bdi", null, workload.name)));
    const scroll = [...this.content.querySelectorAll("pre")].map((pre) => pre.scrollLeft);
    this.content.replaceChildren(
      h("div", { class: "title" }, h("h1", null, h("bdi", null, pod.pod)), h("bdi", { class: "dim" }, pod.namespace), tags, this.note),
      verdict(pod, this.store),
      ...pod.containers.map((row) => this.#container(pod, row)),
      h("div", { class: "cards advice" }, findings(pod, this.state, this.store), aggressors(pod, this.store)),
      h("div", { class: "cards" }, victims(pod, this.store), cpus(pod), runtimes(pod), collections(pod)));
    this.content.querySelectorAll("pre").forEach((pre, at) => { pre.scrollLeft = scroll[at] ?? 0; });
  }

  #container(pod, row) {
    const series = pod.points.containers.find((candidate) => candidate.container === row.container)?.measures ?? {};
    const hasCauses = series.neighbor || series.system;
    const charts = [CHARTS[0], CHARTS[1], hasCauses || !series.contention ? CHARTS[2] : CONTENTION];
    const heading = pod.containers.length > 1 ? [h("h2", { class: "title" }, h("bdi", null, row.container))] : [];
    return h("div", null, heading, h("div", { class: "cards" }, charts.map((definition) => card(definition, series, row, pod.points.atMs))));
  }
}

function card({ title, unit, lines, format, top }, series, row, times) {
  const known = lines.filter(([, measure]) => series[measure]);
  const panel = h("div", { class: "panel card" }, h("h2", null, title), h("p", null, unit));
  if (!known.length) {
    panel.append(h("p", { class: "dim" }, title === "Throttled" && row.limitCores === undefined ? "No CPU limit." : "Not available for this container."));
    return panel;
  }
  // A limit is dashed: above the use, both can be seen.
  const { root, label } = chart(known.map(([name, measure]) => ({ name, values: series[measure], over: name === "limit" })), top, format);
  root.setAttribute("aria-label", `${title} over time, ${unit}. ${known.map(([, measure, text]) => described(text, series[measure], format)).join("; ")}`);
  const reading = readout(root, times, (at) => known.map(([, measure, text]) => `${text} ${format(series[measure][at])}`).join(", "));
  const keys = known.map(([name, measure, text]) => h("li", null, h("i", { class: `k-${name}` }), `${text} `, h("b", null, format(row[measure]))));
  if (title === "Throttled" && row.throttledShare !== undefined) keys.push(h("li", null, "share of the time ", h("b", null, percent(row.throttledShare))));
  if (title === CHARTS[0].title && row.limitCores === undefined) keys.push(h("li", null, "no CPU limit"));
  panel.append(root, axis(times, label), h("ul", { class: "keys" }, keys), reading);
  return panel;
}

/** Times below a chart, and its scale. */
const axis = (times, scale) => times.length > 1 ? ticks(times[0], times.at(-1), scale.textContent) : h("p", { class: "axis" }, scale);

/** Text with the values at the pointer. */
function readout(root, times, text) {
  const element = h("p", { class: "faint" }, "\u00a0");
  const line = cursor(root);
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const at = Math.max(0, Math.min(times.length - 1, Math.round(((event.clientX - box.left) / box.width) * (times.length - 1))));
    setText(element, times[at] ? `${clock(times[at])} ${zone()}: ${text(at)}` : "\u00a0");
    line(times[at] ? at / Math.max(1, times.length - 1) : null);
  });
  root.addEventListener("pointerleave", () => { setText(element, "\u00a0"); line(null); });
  return element;
}

/** The verdict about the pod in the latest frame. */
function verdict(pod, store) {
  const found = (store.frame?.verdicts ?? []).find((one) => one.victim.namespace === pod.namespace && one.victim.pod === pod.pod);
  return found ? h("p", { class: "warn verdict" }, `${found.summary.replace(/^s/, "S")}. ${found.remedy.replace(/^\w/, (letter) => letter.toUpperCase())}.`) : null;
}

/** Pods by seconds; `colors` has the color of those that a chart shows. */
function bars(list, side, colors) {
  return h("div", { class: "bars" }, list.slice(0, 8).flatMap((pair) => {
    const [bar, name, color] = [meter(), podName(pair[side]), colors.get(pairKey(pair[side]))];
    bar.set(pair.seconds / list[0].seconds);
    if (color !== undefined) bar.element.classList.add(`k-pair-${color}`);
    return [h("span", { title: name }, color === undefined ? null : h("i", { class: `k-pair-${color}` }), h("bdi", null, name)), h("b", null, seconds(pair.seconds)), bar.element];
  }));
}

function none(store) {
  const trace = store.frame?.node.trace;
  return h("p", { class: "dim" }, trace?.mode === "off" ? `Not known: ${trace.reason || "the scheduler trace is off"}.` : "None.");
}

function aggressors(pod, store) {
  const panel = h("div", { class: "panel card" }, h("h2", null, "Made it wait"), h("p", null, "pods that were running while this one was ready: of the time, and seconds in total"));
  if (!pod.aggressors.length) {
    panel.append(none(store));
    return panel;
  }
  const shown = pod.points.pairs.slice(0, COLORS);
  const format = percent;
  if (shown.length) {
    const { root, label } = chart(shown.map((pair, at) => ({ name: `pair-${at}`, values: pair.wait })), 0.01, format);
    root.setAttribute("aria-label", `Waited for whom over time. ${shown.map((pair) => described(podName(pair.aggressor), pair.wait, format)).join("; ")}`);
    const reading = readout(root, pod.points.atMs, (at) => shown.filter((pair) => pair.wait[at] > 0).map((pair) => `${podName(pair.aggressor)} ${format(pair.wait[at])}`).join(", ") || "none");
    panel.append(root, axis(pod.points.atMs, label), reading);
  }
  // The host is no pod: apart, so that it does not stand above the pod that could be moved.
  const isSystem = (pair) => pair.aggressor.namespace === "system" && !pair.aggressor.pod;
  const colors = new Map(shown.map((pair, at) => [pairKey(pair.aggressor), at]));
  const [pods, host] = [pod.aggressors.filter((pair) => !isSystem(pair)), pod.aggressors.filter(isSystem)];
  if (pods.length) panel.append(bars(pods, "aggressor", colors));
  if (host.length) panel.append(h("p", null, "and the host"), bars(host, "aggressor", colors));
  return panel;
}

function victims(pod, store) {
  return h("div", { class: "panel card" }, h("h2", null, "Waited for it"), h("p", null, "pods that were ready while this one was running: seconds in total"), pod.victims.length ? bars(pod.victims, "victim", new Map()) : none(store));
}

// An exclusive set of CPUs, a rejected request for one, or a setting that the agent wrote.
function pin(row) {
  if (row.reason) return h("p", { class: "warn" }, `Exclusive CPUs rejected: ${row.reason}.`);
  if (row.setting) return h("p", null, `The agent set ${row.setting} to ${row.value} (before: ${row.original}) in ${row.cgroup}.`);
  return h("p", null, `Exclusive CPUs ${row.cpus} (${row.cpu_qos}, ${row.bind_policy})${row.verified ? ", verified" : ", NOT as granted"}.`);
}

function cpus(pod) {
  const pins = pod.pins.map(pin);
  return h("div", { class: "panel card" }, h("h2", null, "CPUs"), h("p", null, "CPUs that each container may use."), h("div", { class: "bars" }, pod.containers.flatMap((row) => [h("bdi", null, row.container), h("b", null, row.cpus ?? NONE)])), pins);
}

function findings(pod, state, store) {
  const panel = h("div", { class: "panel card" }, h("h2", null, "Findings"));
  const all = pod.advice.flatMap((report) => report.findings.map((finding) => [report, finding]));
  // Until the kind is known, neither may be true.
  const none = store.recording === null ? "" : store.recording ? NO_FINDINGS : "Nothing to change so far.";
  if (!all.length) panel.append(h("p", null, none));
  for (const [report, finding] of all) {
    const text = change(finding);
    panel.append(h("div", { class: "finding" },
      h("h3", null, titleOf(finding), severity(finding), pod.containers.length > 1 ? h("bdi", { class: "tag" }, report.container) : null),
      finding.summary ? h("p", null, finding.summary) : null,
      evidence(finding) ? h("p", null, evidence(finding)) : null,
      text ? h("p", { class: finding.patch ? "change" : null }, text) : null,
      finding.patch && !pod.patchCommand ? h("pre", { tabindex: "0" }, JSON.stringify(finding.patch, null, 2)) : null));
  }
  const qos = pod.advice.find((report) => report.qosChange)?.qosChange;
  if (qos) panel.append(h("p", null, `The changes move the pod to another QoS class: ${qos}.`));
  if (pod.patchCommand) panel.append(command(pod.patchCommand, state));
  const pending = [...new Set(pod.advice.map((report) => report.notEnoughHistory).filter(Boolean))];
  for (const text of pending) panel.append(h("p", { class: "dim" }, text));
  return panel;
}

const STATUS = {
  observed: () => "would be set at the next start", injected: () => "set at creation",
  stale: ({ current }) => `set at creation, but the limits now give ${current ?? "none"}`,
};

const mebibytes = (bytes) => `${(bytes / 2 ** 20).toFixed(0)} MiB`;

/** Garbage collection of each container in the last ten seconds. */
function collections(pod) {
  const rows = pod.containers.filter((row) => row.gc).map(({ container, gc }) => {
    const share = gc.cpuShare === undefined ? "" : `${percent(gc.cpuShare)} of its CPU time, `;
    const cycles = gc.cycles === undefined ? "" : `${gc.cycles.toFixed(gc.cycles < 1 ? 2 : 1)} cycles per s; `;
    const sizes = [["live", gc.liveBytes], ["goal", gc.goalBytes], ["limit", gc.limitBytes]].filter(([, bytes]) => bytes !== undefined);
    const stopped = gc.stoppedShare === undefined ? "" : `stopped ${percent(gc.stoppedShare)} of the time; `;
    const collectors = gc.collectors?.length ? `; ${gc.collectors.join(", ")}` : "";
    const gogc = gc.gogc === undefined ? "" : `; GOGC ${gc.gogc < 0 ? "off" : gc.gogc}`;
    return [container, `${share}${cycles}${stopped}heap ${sizes.map(([name, bytes]) => `${name} ${mebibytes(bytes)}`).join(", ")}${gogc}${collectors}`];
  });
  if (!rows.length) return null;
  return h("div", { class: "panel card" }, h("h2", null, "Garbage collection"), h("p", null, "in the last ten seconds, by the runtime's own clock"),
    h("div", { class: "bars" }, rows.flatMap(([name, text]) => [h("span", null, name), h("span", { class: "dim" }, text)])));
}

/** Language runtimes with their threads, and the variables that the agent injects. */
function runtimes(pod) {
  const rows = pod.advice.flatMap(({ container, runtime, injected }) => {
    const of = pod.containers.length > 1 ? `${container}: ` : "";
    const source = runtime?.parallelismSource ? ` (${runtime.parallelismSource})` : "";
    const threads = runtime?.parallelism ? `${runtime.parallelism} threads${source}` : "";
    const language = runtime && (runtime.language !== "unknown" || threads) ? [[`${of}${runtime.version ?? runtime.language}`, threads, ""]] : [];
    const variables = (injected ?? []).map((variable) => [`${of}${variable.name}=${variable.value}`, STATUS[variable.status]?.(variable) ?? variable.status, variable.status]);
    return [...language, ...variables];
  });
  if (!rows.length) return null;
  return h("div", { class: "panel card" }, h("h2", null, "Runtime and injected variables"), h("p", null, "as the first process of each container was started"),
    h("div", { class: "bars" }, rows.flatMap(([name, text, status]) => [h("span", { title: name }, name), h("span", { class: status === "stale" ? "warn" : "dim" }, text)])));
}
