// Findings with their change, of one pod and of the node.

import { NONE, Selection, h, podName, setText } from "./draw.js";
import { get, matches, pairKey } from "./data.js";

const TITLES = {
  "throttled-by-own-quota": "Throttled by its own limit", "throttled-by-ancestor": "Throttled by a limit above it", "no-cpu-request": "No CPU request",
  "fractional-limit": "Fractional CPU limit", "parallelism-above-limit": "More threads than the limit can supply", "parallelism-below-limit": "Fewer threads than the limit allows",
  "claimed-cpus-throttled": "Claimed CPUs throttled by the pod's limit",
  "limit-not-in-force": "Limit not in force", "limit-too-tight-for-bursts": "Limit too tight for bursts", "request-above-use": "Request far above use", "request-below-use": "Request far below use",
  "memory-limit-not-request": "Memory limit and request differ", "no-memory-limit": "No memory limit", "heap-limit-unset": "Heap not bounded", "go-ignores-limit": "Go ignores the CPU limit",
  "injected-env-stale": "Injected variables do not match the limits",
  "gc-costly": "Garbage collection costs much CPU", "gc-too-often": "Garbage is collected too often", "gc-in-throttled-time": "Garbage collection while throttled",
  "heap-near-limit": "Live heap near its limit", "gc-setting-fights-limit": "GC setting fights the memory limit",
  "slowed-by-others": "Slowed by others", "kernel-slice-expiry": "Kernel expires slices",
};
/** Time for which a button says that it has copied, milliseconds. */
const COPIED = 3000;

export const title = (finding) => TITLES[finding.kind] ?? finding.kind;

/** Figures behind a finding. */
export function evidence(finding) {
  const figures = (finding.figures ?? []).join(", ");
  return figures && finding.windows ? `${figures} (${finding.windows} seconds)` : figures;
}

/** Fields that the patch of a finding sets, such as `resources.limits.cpu = 640m`; without a patch, the reason. */
export function change(finding) {
  if (!finding.patch) return finding.noPatch ?? "";
  const fields = [];
  const collect = (value, path) => {
    if (Array.isArray(value)) value.forEach((entry) => collect(entry, ""));
    else if (value === null) return;
    else if (typeof value !== "object") fields.push(`${path} = ${value}`);
    else if ("value" in value) fields.push(`env ${value.name} = ${value.value}`);
    else for (const [name, inner] of Object.entries(value)) if (name !== "name") collect(inner, path ? `${path}.${name}` : name);
  };
  collect(finding.patch.spec?.template?.spec ?? finding.patch, "");
  return fields.join(", ");
}

/** Shown instead of findings, which recordings do not contain. */
export const NO_FINDINGS = "A recording has no findings.";

export const severity = (finding) => h("span", { class: `severity ${finding.severity}` }, finding.severity);

/** Copies a text; without a clipboard, which only secure origins have, by selecting it. */
async function copy(text, element) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(element);
    document.execCommand("copy");
    getSelection().removeAllRanges();
  }
}

/** A command with a button that copies it. `state` outlives the element. */
export function command(text, state) {
  const pre = h("pre", { class: "command", tabindex: "0" }, text);
  const button = h("button", { type: "button" }, Date.now() - (state.copiedAt ?? 0) < COPIED ? "Copied" : "Copy");
  button.addEventListener("click", async () => {
    await copy(text, pre);
    state.copiedAt = Date.now();
    setText(button, "Copied");
    setTimeout(() => setText(button, "Copy"), COPIED);
  });
  return h("div", { class: "copy" }, h("p", null, "This command makes all changes:"), pre, button);
}

const COLUMNS = ["Pod", "Finding", "Figures", "Change"];
/** Rows shown before a button offers the rest: about as many as a screen has. */
const SHOWN = 12;
/** Figures that are a share of time lost, or seconds lost per second. */
const EFFECTS = ["throttledShare", "throttledSecondsPerSecond", "lostShare"];

const effect = (finding) => Math.max(0, ...EFFECTS.map((name) => finding.evidence[name] ?? 0));

/** Warnings first; of these the ones with a change, then with a measured effect; then by effect. */
function byUrgency(a, b) {
  const rank = (finding) => (finding.severity === "warning" ? 0 : 3) + (finding.patch ? 0 : effect(finding) > 0 ? 1 : 2);
  return rank(a) - rank(b) || effect(b) - effect(a);
}

const workloadOf = (report) => report.workload ? `${report.workload.kind} ${report.workload.name}` : "";

/** One entry for each kind of finding in a container of a workload: of its most urgent pod, with the number of pods. */
function byWorkload(all) {
  const groups = new Map();
  for (const [report, finding] of all) {
    const key = [report.namespace, workloadOf(report) || report.pod, report.container, finding.kind].join("/");
    const group = groups.get(key) ?? { report, finding, pods: new Set() };
    group.pods.add(report.pod);
    groups.set(key, group);
  }
  return [...groups.values()];
}

/** Text of an entry that the filter searches, in lower case. */
function textOf({ report, finding }) {
  return [report.namespace, report.pod, report.container, workloadOf(report), finding.kind, title(finding), finding.severity].join(" ").toLowerCase();
}

/** All findings of the node, most urgent first. */
export class Advice {
  all = false;
  text = "";

  constructor(store) {
    this.store = store;
    this.note = h("span", { class: "count" });
    this.body = h("tbody");
    this.selection = new Selection(this.body);
    this.empty = h("p", { class: "empty" }, "Loading …");
    this.more = h("button", { type: "button", class: "more", hidden: true, onclick: () => { this.all = true; this.update(); } });
    this.table = h("table", { class: "list advice", hidden: true }, h("thead", null, h("tr", null, COLUMNS.map((name) => h("th", { scope: "col", class: "text" }, h("span", { class: "label" }, name))))), this.body);
    this.element = h("section", { "aria-label": "Advice" }, h("h1", { class: "unseen" }, "Advice"), h("div", { class: "tools" }, this.note), h("div", { class: "panel" }, h("div", { class: "scroll" }, this.table), this.empty, this.more));
    this.input = h("input", { type: "search", placeholder: "Filter by workload, pod or finding", "aria-label": "Filter findings", title: "All words must match, and none after ! or -", oninput: () => this.filter(this.input.value) });
    this.note.before(this.input);
  }

  /** Filters by the words of a text. */
  filter(text) {
    this.text = text.trim().toLowerCase();
    this.selection.at = 0;
    if (this.reports) this.#draw(this.reports);
  }

  async update() {
    if (this.busy) return;
    this.busy = true;
    try {
      this.reports = (await get("advice")).containers;
      this.#draw(this.reports);
    } catch (error) { setText(this.note, error.message); }
    this.busy = false;
  }

  #draw(reports) {
    // The event that reports the kind draws again.
    if (this.store.recording === null) return;
    const found = reports.flatMap((report) => report.findings.map((finding) => [report, finding])).sort(([, a], [, b]) => byUrgency(a, b));
    const groups = byWorkload(found);
    const all = groups.filter((group) => matches(textOf(group), this.text));
    const shown = this.all ? all : all.slice(0, SHOWN);
    const uids = new Map((this.store.frame?.containers ?? []).map((row) => [pairKey(row), row.uid]));
    const rows = shown.map(({ report, finding, pods }) => {
      const place = [report.container, pods.size > 1 ? `${pods.size} pods of ${workloadOf(report)}` : workloadOf(report)].filter(Boolean).join(" · ");
      return this.#row({ ...report, container: place }, finding, uids.get(pairKey(report)));
    });
    this.selection.update(() => this.body.replaceChildren(...rows));
    this.more.hidden = shown.length === all.length;
    setText(this.more, `Show the other ${all.length - shown.length}`);
    this.table.hidden = !all.length;
    this.empty.hidden = all.length > 0;
    const pending = [...new Set(reports.map((report) => report.notEnoughHistory).filter(Boolean))];
    setText(this.empty, this.store.recording ? NO_FINDINGS : groups.length ? "No finding matches the filter." : reports.length ? "Nothing to change so far." : "No containers.");
    if (this.store.recording) { setText(this.note, ""); return; }
    const affected = new Set(found.map(([report]) => report)).size;
    const count = this.text ? `${all.length} of ${groups.length}` : groups.length;
    setText(this.note, [`${count} finding${groups.length === 1 ? "" : "s"} by workload, in ${affected} of ${reports.length} containers`, pending.length === 1 ? pending[0] : pending.length ? "some advice needs more history" : ""].filter(Boolean).join("; "));
  }

  #row(report, finding, uid) {
    const name = h(uid ? "a" : "span", { class: "pod", title: podName(report), href: uid ? `#pod/${encodeURIComponent(uid)}` : null }, h("bdi", null, report.pod));
    const cell = (at, kind, ...content) => h("td", { class: `text ${kind}`, "data-label": COLUMNS[at] }, ...content);
    return h("tr", { "data-key": [report.namespace, report.pod, report.container, finding.kind].join("/"), onclick: () => { if (uid) location.hash = `#pod/${encodeURIComponent(uid)}`; } },
      cell(0, "name", name, h("bdi", { class: "sub" }, [report.namespace, report.container].filter(Boolean).join(" · "))),
      cell(1, "wrap wide", title(finding), " ", severity(finding)), cell(2, "wrap wide dim", finding.summary ?? (evidence(finding) || NONE)), cell(3, "wrap wide", change(finding) || NONE));
  }
}
