// The time: a chart of the node with the window that all views show, and how it is chosen.

import { chart, clock, cores, dateTime, h, percent, setText, setZone, ticks, zone } from "./draw.js";
import { get, lost } from "./data.js";

/** Lengths of the chart, seconds. */
const RANGES = [[600, "10 minutes"], [3600, "1 hour"], [6 * 3600, "6 hours"], [24 * 3600, "24 hours"]];
/** Points of the chart. */
const POINTS = 600;
/** Seconds of the window after a click. */
const MINUTE = 60;
/** Pixels from which a movement of the pointer is a drag. */
const DRAG = 4;

/** Time in a link: 2026-11-22T03:04:05Z. */
const toLink = (ms) => new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");

/** The window in a link's query: `to` and `seconds`; `null` without one. */
export function windowOf(query) {
  const values = new URLSearchParams(query);
  const [until, seconds] = [Date.parse(values.get("to")), Number(values.get("seconds") ?? MINUTE)];
  return Number.isFinite(until) && seconds >= 1 ? { until, seconds: Math.min(86400, Math.round(seconds)) } : null;
}

export const queryOf = (window) => window ? `to=${toLink(window.until)}&seconds=${window.seconds}` : "";

/** Begin and end of a window as text. */
export function windowText({ until, seconds }) {
  return `${dateTime(until - 1000 * seconds).replace(/ [^ ]+$/, "")} to ${clock(until)} ${zone()}`;
}

export class TimeBar {
  range = RANGES[0][0];
  /** The chart: lists of the same length. */
  points = { atMs: [], lost: [], usageCores: [] };
  #asked = 0;
  #drag = null;
  /** Share of the chart's width at the pointer. */
  #pointed = null;

  /** `choose` is called with a window, or `null` for now. */
  constructor(store, choose) {
    this.store = store;
    this.choose = choose;
    const button = (text, title, onclick) => h("button", { type: "button", title, "aria-label": title, onclick }, text);
    this.ranges = h("select", { "aria-label": "Length of the chart", onchange: () => { this.range = Number(this.ranges.value); this.load(); } });
    this.text = h("span", { class: "window" });
    this.now = button("Now", "Back to the latest second (key n)", () => this.choose(null));
    this.zone = button("UTC", "Show times in UTC or in local time (key z)", () => this.turnZone());
    this.plot = h("div", { class: "plot" });
    this.reading = h("p", { class: "faint" }, "\u00a0");
    this.error = h("p", { class: "warn", role: "status", hidden: true });
    this.element = h("section", { class: "time", "aria-label": "Time" },
      h("div", { class: "tools" }, button("◀", "Earlier by the length of the window (key [)", () => this.move(-1)), button("▶", "Later by the length of the window (key ])", () => this.move(1)), this.now, this.ranges, this.zone, this.text),
      this.plot, this.reading, this.error);
    this.plot.addEventListener("pointerdown", (event) => this.#begin(event));
    this.plot.addEventListener("pointermove", (event) => this.#point(event));
    this.plot.addEventListener("pointerup", (event) => this.#end(event));
    this.plot.addEventListener("pointercancel", () => { this.#drag = null; this.draw(); });
    this.plot.addEventListener("pointerleave", () => { this.#pointed = null; if (!this.#drag) this.#showCursor(); });
    this.#offerRanges();
  }

  /** Ranges up to the first that has all of the recording. */
  #offerRanges() {
    const seconds = this.store.beginMs ? (this.#latest() - this.store.beginMs) / 1000 : 0;
    const enough = RANGES.findIndex(([range]) => range >= seconds);
    const offered = RANGES.slice(0, (enough < 0 ? RANGES.length - 1 : enough) + 1);
    if (this.ranges.children.length === offered.length) return;
    this.ranges.replaceChildren(...offered.map(([value, text]) => h("option", { value, selected: value === this.range }, text)));
    this.ranges.hidden = offered.length < 2;
  }

  #latest() { return this.store.latestMs ?? Date.now(); }

  /** End of the chart: now, unless the window is further back. */
  #chartEnd() {
    const [latest, window] = [this.#latest(), this.store.window];
    if (!window || window.until - 1000 * window.seconds >= latest - 1000 * this.range) return latest;
    return Math.min(latest, window.until + 500 * this.range);
  }

  /** Loads the chart. */
  async load() {
    if (!this.store.latestMs) return;
    this.#asked = Date.now();
    this.#offerRanges();
    const [range, end] = [this.range, this.#chartEnd()];
    this.end = end;
    const until = end === this.#latest() && !this.store.recording ? "" : `&until=${end}`;
    try {
      const points = await get(`overview?seconds=${range}&points=${POINTS}${until}`);
      if (points.atMs && range === this.range && end === this.end) this.points = points;
    } catch (error) {
      if (this.store.window) this.fail(error.message);
    }
    this.draw();
  }

  /** Adds a live frame to the chart. */
  add(frame) {
    // It is loaded as soon as the agent has said whether this is a recording.
    if (!this.#asked || this.store.window) return;
    const { atMs, lost: losses, usageCores } = this.points;
    // With longer steps than a frame, the chart is loaded again.
    if (this.range > POINTS || this.store.recording) {
      if (Date.now() - this.#asked > Math.max(10_000, (1000 * this.range) / POINTS)) this.load();
      return;
    }
    atMs.push(frame.atMs);
    losses.push(frame.containers.reduce((sum, row) => sum + lost(row), 0));
    usageCores.push(frame.containers.reduce((sum, row) => sum + (row.usageCores ?? 0), 0));
    while (atMs.length && atMs[0] <= frame.atMs - 1000 * this.range) for (const list of [atMs, losses, usageCores]) list.shift();
    this.end = frame.atMs;
    this.draw();
  }

  /** Shows another window. */
  show() {
    this.fail("");
    const window = this.store.window;
    const begin = window && window.until - 1000 * window.seconds;
    if (window && (window.until > this.end || begin < this.end - 1000 * this.range)) this.load();
    else if (!window) this.load();
    this.draw();
  }

  fail(text) {
    this.error.hidden = !text;
    setText(this.error, text);
  }

  /** Moves the window by its length. */
  move(direction) {
    const { until, seconds } = this.store.window ?? { until: this.#latest(), seconds: MINUTE };
    const next = until + direction * 1000 * seconds;
    this.choose(next >= this.#latest() ? null : { until: next, seconds });
  }

  turnZone() {
    setZone(!this.isLocal);
    this.isLocal = !this.isLocal;
    setText(this.zone, zone());
    this.draw();
    this.onzone?.();
  }

  draw() {
    const window = this.store.window;
    this.now.hidden = !window;
    setText(this.text, window ? windowText(window) : "the latest second");
    this.text.classList.toggle("warn", Boolean(window));
    if (this.#drag?.isMoving || !this.end) return;
    const begin = this.end - 1000 * this.range;
    const { root, label } = chart([{ name: "lost", values: this.points.lost }], 0.05, percent, { atMs: this.points.atMs, begin, end: this.end });
    root.setAttribute("aria-label", this.#summary());
    this.cursor = h("i", { class: "cursor", hidden: true });
    this.frame = h("i", { class: "frame", hidden: true });
    this.plot.replaceChildren(root, this.frame, this.cursor, ticks(begin, this.end, label.textContent.replace("scale", "time lost,")));
    if (window) this.#place(window.until - 1000 * window.seconds, window.until);
    this.#showCursor();
  }

  /** The chart in words. */
  #summary() {
    const { atMs, lost: values } = this.points;
    if (!values.length) return "Time lost by all containers: no data";
    const most = values.indexOf(Math.max(...values));
    return `Time lost by all containers from ${dateTime(atMs[0])} to ${clock(atMs.at(-1))}: at most ${percent(values[most])}, at ${clock(atMs[most])}`;
  }

  #place(begin, end) {
    const share = (time) => Math.max(0, Math.min(1, 1 - (this.end - time) / (1000 * this.range)));
    this.frame.hidden = false;
    this.frame.style.left = `${100 * share(begin)}%`;
    this.frame.style.width = `max(3px, ${100 * (share(end) - share(begin))}%)`;
  }

  #time(event) {
    const box = this.plot.getBoundingClientRect();
    return this.#timeAt(Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)));
  }

  /** The second at a share of the width. */
  #timeAt(share) { return Math.round((this.end - 1000 * this.range * (1 - share)) / 1000) * 1000; }

  #begin(event) {
    if (!this.end || event.button) return;
    const [time, window] = [this.#time(event), this.store.window];
    const isInside = window && time <= window.until && time >= window.until - 1000 * window.seconds;
    this.#drag = { time, x: event.clientX, moved: isInside ? window : null, isMoving: false };
    this.plot.setPointerCapture?.(event.pointerId);
  }

  /** The window of a drag to this time. */
  #dragged(time) {
    const { time: from, moved } = this.#drag;
    if (moved) return { until: Math.min(this.#latest(), moved.until + time - from), seconds: moved.seconds };
    return { until: Math.max(from, time), seconds: Math.max(1, Math.abs(time - from) / 1000) };
  }

  #point(event) {
    if (!this.end) return;
    const time = this.#time(event);
    this.#pointed = 1 - (this.end - time) / (1000 * this.range);
    this.#showCursor();
    if (!this.#drag) return;
    this.#drag.isMoving ||= Math.abs(event.clientX - this.#drag.x) >= DRAG;
    if (!this.#drag.isMoving) return;
    const window = this.#dragged(time);
    this.#place(window.until - 1000 * window.seconds, window.until);
    setText(this.text, windowText(window));
  }

  #end(event) {
    const drag = this.#drag;
    if (!drag) return;
    const time = this.#time(event);
    const window = drag.isMoving ? this.#dragged(time) : { until: Math.min(this.#latest(), time + 500 * MINUTE), seconds: MINUTE };
    this.#drag = null;
    this.choose(window);
  }

  /** A line at the pointer, and the values of its time as text. */
  #showCursor() {
    if (!this.cursor) return;
    const time = this.#pointed === null ? null : this.#timeAt(this.#pointed);
    const { atMs, lost: values, usageCores } = this.points;
    this.cursor.hidden = time === null || !atMs.length;
    if (this.cursor.hidden) { setText(this.reading, "\u00a0"); return; }
    this.cursor.style.left = `${100 * (1 - (this.end - time) / (1000 * this.range))}%`;
    const at = atMs.findIndex((one) => one >= time);
    const near = at < 0 ? atMs.length - 1 : at;
    const isKnown = Math.abs(atMs[near] - time) <= Math.max(15_000, (2000 * this.range) / POINTS);
    setText(this.reading, isKnown ? `${dateTime(atMs[near])}: ${percent(values[near])} of the time lost, ${cores(usageCores[near])} cores used` : `${dateTime(time)}: no data`);
  }
}
