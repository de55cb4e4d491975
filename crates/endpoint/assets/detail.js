// One pod: five minutes, its aggressors and victims, CPUs, and findings with the change.

import { NONE, chart, cores, h, meter, ms, percent, podName, seconds, setText } from "./draw.js";
import { get } from "./data.js";

const CHARTS = [
  { title: "Use against limit", unit: "cores", lines: [["use", "usageCores", "used"], ["limit", "limitCores", "limit"]], format: cores, top: 0.05 },
  { title: "Throttled", unit: "ms of each second, summed over CPUs", lines: [["own", "throttledOwn", "by its own limit"], ["ancestor", "throttledAncestor", "by a limit above"]], format: (value) => `${ms(value)} ms`, top: 0.01 },
  { title: "Waits by cause", unit: "ms of each second, summed over threads", lines: [["neighbor", "neighbor", "neighbor"], ["self", "self", "self"], ["system", "system", "system"], ["smt", "smt", "SMT"]], format: (value) => `${ms(value)} ms`, top: 0.01 },
];
/** Shown instead of the causes where they are not known. */
const CONTENTION = { title: "Waits", unit: "at least, ms of each second; the cause is not known", lines: [["contention", "contention", "any cause"]], format: (value) => `${ms(value)} ms`, top: 0.01 };

const TITLES = {
  "throttled-by-own-quota": "Throttled by its own limit", "throttled-by-ancestor": "Throttled by a limit above it", "no-cpu-request": "No CPU request",
  "fractional-limit": "Fractional CPU limit", "parallelism-above-limit": "More threads than the limit can supply", "parallelism-below-limit": "Fewer threads than the limit allows",
  "limit-too-tight-for-bursts": "Limit too tight for bursts", "request-above-use": "Request far above use", "request-below-use": "Request far below use",
  "memory-limit-not-request": "Memory limit and request differ", "no-memory-limit": "No memory limit", "heap-limit-unset": "Heap not bounded", "go-ignores-limit": "Go ignores the CPU limit",
  "injected-env-stale": "Injected variables do not match the limits",
  "noisy-neighbor": "Noisy neighbor", "kernel-slice-expiry": "Kernel expires slices",
};

export class Detail {
  constructor(store) {
    this.store = store;
    this.element = h("section", { "aria-label": "Pod" });
  }

  open(uid) {
    this.uid = uid;
    this.element.replaceChildren(h("p", { class: "empty" }, "Loading …"));
    this.update();
  }

  async update() {
    if (this.busy) return;
    this.busy = true;
    const uid = this.uid;
    try {
      const pod = await get(`pods/${encodeURIComponent(uid)}`);
      if (uid === this.uid && !this.#isSelecting()) this.#draw(pod);
    } catch (error) {
      if (uid === this.uid && !this.element.querySelector("h1")) this.element.replaceChildren(back(), h("p", { class: "empty" }, error.message));
      else if (uid === this.uid) setText(this.note, `not updated: ${error.message}`);
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
    const tags = [pod.qosClass, pod.cpuQos].filter(Boolean).map((text) => h("span", { class: "tag" }, text));
    const scroll = [...this.element.querySelectorAll("pre")].map((pre) => pre.scrollLeft);
    this.element.replaceChildren(
      back(), h("div", { class: "title" }, h("h1", null, pod.pod), h("span", { class: "dim" }, pod.namespace), tags, this.note),
      ...pod.containers.map((row) => this.#container(pod, row)),
      h("div", { class: "cards wide" }, findings(pod), pairs("Made it wait", "Pods that were running while this one was ready, seconds in the last five minutes.", pod.aggressors, "aggressor", this.store), pairs("Waited for it", "Pods that were ready while this one was running.", pod.victims, "victim", this.store)), h("div", { class: "cards" }, cpus(pod)));
    this.element.querySelectorAll("pre").forEach((pre, at) => { pre.scrollLeft = scroll[at] ?? 0; });
  }

  #container(pod, row) {
    const series = pod.points.containers.find((candidate) => candidate.container === row.container)?.measures ?? {};
    const hasCauses = series.neighbor || series.system;
    const charts = [CHARTS[0], CHARTS[1], hasCauses || !series.contention ? CHARTS[2] : CONTENTION];
    const heading = pod.containers.length > 1 ? [h("h2", { class: "title" }, row.container)] : [];
    return h("div", null, heading, h("div", { class: "cards" }, charts.map((definition) => card(definition, series, row, pod.points.atMs))));
  }
}

function back() {
  return h("a", { class: "back", href: "#pods" }, "← All pods");
}

function card({ title, unit, lines, format, top }, series, row, times) {
  const known = lines.filter(([, measure]) => series[measure]);
  const panel = h("div", { class: "panel card" }, h("h2", null, title), h("p", null, unit));
  if (!known.length) {
    panel.append(h("p", { class: "dim" }, "Not available for this container."));
    return panel;
  }
  const { root, label } = chart(known.map(([name, measure]) => ({ name, values: series[measure] })), top, format);
  root.setAttribute("aria-label", `${title}, last five minutes`);
  const reading = h("span", null);
  const show = (at) => {
    const time = times[at] ? new Date(times[at]).toLocaleTimeString() : "";
    setText(reading, at === null ? "" : ` · at ${time}: ${known.map(([, measure, text]) => `${text} ${format(series[measure][at])}`).join(", ")}`);
  };
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    show(Math.max(0, Math.min(times.length - 1, Math.round(((event.clientX - box.left) / box.width) * (times.length - 1)))));
  });
  root.addEventListener("pointerleave", () => show(null));
  const keys = known.map(([name, measure, text]) => h("li", null, h("i", { class: `k-${name}` }), `${text} `, h("b", null, format(row[measure]))));
  if (title === "Throttled" && row.throttledShare !== undefined) keys.push(h("li", null, "share of the time ", h("b", null, percent(row.throttledShare))));
  panel.append(root, h("ul", { class: "keys" }, keys), h("p", { class: "faint" }, label, reading));
  return panel;
}

function pairs(title, help, list, side, store) {
  const panel = h("div", { class: "panel card" }, h("h2", null, title), h("p", null, help));
  if (!list.length) {
    const trace = store.frame?.node.trace;
    panel.append(h("p", { class: "dim" }, trace?.mode === "off" ? `Not known: ${trace.reason || "the scheduler trace is off"}.` : "None."));
    return panel;
  }
  const most = list[0].seconds;
  panel.append(h("div", { class: "bars" }, list.slice(0, 8).flatMap((pair) => {
    const bar = meter();
    bar.set(pair.seconds / most);
    return [h("span", { title: podName(pair[side]) }, podName(pair[side])), h("b", null, seconds(pair.seconds)), bar.element];
  })));
  return panel;
}

function cpus(pod) {
  const pins = pod.pins.map((pin) => pin.reason ? h("p", { class: "warn" }, `Exclusive CPUs rejected: ${pin.reason}.`) : h("p", null, `Exclusive CPUs ${pin.cpus} (${pin.cpu_qos}, ${pin.bind_policy})${pin.verified ? ", verified" : ", NOT as granted"}.`));
  return h("div", { class: "panel card" }, h("h2", null, "CPUs"), h("p", null, "CPUs that each container may use."), h("div", { class: "bars" }, pod.containers.flatMap((row) => [h("span", null, row.container), h("b", null, row.cpus ?? NONE)])), pins);
}

function findings(pod) {
  const panel = h("div", { class: "panel card" }, h("h2", null, "Findings"));
  const all = pod.advice.flatMap((report) => report.findings.map((finding) => [report, finding]));
  if (!all.length) panel.append(h("p", null, "Nothing to change so far."));
  for (const [report, finding] of all) {
    const evidence = Object.entries(finding.evidence).map(([name, value]) => `${name.replaceAll("_", " ")} ${Number(value.toPrecision(3))}`).join(", ");
    panel.append(h("div", { class: "finding" },
      h("h3", null, TITLES[finding.kind] ?? finding.kind, h("span", { class: `severity ${finding.severity}` }, finding.severity), pod.containers.length > 1 ? h("span", { class: "tag" }, report.container) : null),
      h("p", null, evidence, finding.windows ? ` (${finding.windows} seconds)` : ""),
      finding.patch ? h("pre", { tabindex: "0" }, JSON.stringify(finding.patch, null, 2)) : h("p", null, finding.noPatch ?? "")));
  }
  const pending = [...new Set(pod.advice.map((report) => report.notEnoughHistory).filter(Boolean))];
  for (const text of pending) panel.append(h("p", { class: "dim" }, text));
  return panel;
}
