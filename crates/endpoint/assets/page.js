// The page: views, keys, and the live state.

import { Advice } from "./advice.js";
import { dateTime, h, setText } from "./draw.js";
import { Store } from "./data.js";
import { Aggressors, COLUMNS, Matrix, Victims, fullLabel, headline } from "./pods.js";
import { Detail } from "./detail.js";
import { Topology, facts, notice } from "./node.js";
import { TimeBar, queryOf, windowOf, windowText } from "./time.js";

const find = (id) => document.getElementById(id);
const [main, live, pause, dialog] = ["main", "live", "pause", "dialog"].map(find);

const store = new Store();
const go = (hash) => { location.hash = hash; };
const open = (uid) => go(`#pod/${encodeURIComponent(uid)}`);
const views = { pods: new Victims(store, open), aggressors: new Aggressors(store), matrix: new Matrix(store), topology: new Topology(store), advice: new Advice(store), pod: new Detail(store) };
/** Frames between two requests of the views that ask the agent. */
const EVERY = { matrix: 2, advice: 5, pod: 2 };

/** Parts of the address after `#`: the view, and the query with the window. */
const address = () => location.hash.slice(1).split("?");
const bar = new TimeBar(store, (window) => go(`#${address()[0] || "pods"}?${window ? queryOf(window) : "now"}`));
find("time").append(bar.element);

let current = null;
let paused = false;
let connection = null;
let frames = 0;

function route() {
  const [path, query] = address();
  const [name, ...rest] = path.split("/");
  if (query === undefined) {
    // A link to another view keeps the window.
    if (store.window) history.replaceState(null, "", `#${path || "pods"}?${queryOf(store.window)}`);
  } else {
    if (!windowOf(query)) history.replaceState(null, "", `#${path || "pods"}`);
    setWindow(windowOf(query));
  }
  const next = views[name] ?? views.pods;
  if (name === "pod") views.pod.open(decodeURIComponent(rest.join("/")));
  current = next;
  if (main.firstElementChild !== next.element) {
    const isFirst = !main.firstElementChild;
    main.replaceChildren(next.element);
    if (!isFirst) main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  for (const link of document.querySelectorAll("nav a")) {
    if (views[link.dataset.view] === next) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  announce();
  if (name !== "pod") next.update();
}

/** Shows another window, or now. */
async function setWindow(window) {
  if (queryOf(window) === queryOf(store.window)) return;
  if (paused) setPaused(false);
  const shown = store.show(window);
  bar.show();
  status();
  setText(pause, window ? "Now" : "Pause");
  try { await shown; } catch (error) { if (window === store.window) bar.fail(error.message); }
  if (window !== store.window || !store.frame) return;
  redraw();
}

/** Draws the header and the current view again. */
function redraw() {
  facts(find("facts"), store.frame, store.recording || Boolean(store.window));
  announce();
  current.update(true);
}

/** Why the figures are less than they could be, or later than the others. */
function announce() {
  const reason = store.frame ? notice(store.frame) : "";
  const isLater = paused && viewName() in EVERY;
  const isNow = store.window && ["topology", "advice"].includes(viewName()) ? "This view shows the latest state, not that of the window." : "";
  const text = [reason, isNow, isLater ? "The pause does not freeze this view: its figures are from the time at which it was opened." : ""].filter(Boolean).join(" ");
  find("notice").hidden = !text;
  setText(find("notice"), text);
}

const viewName = () => Object.keys(views).find((key) => views[key] === current);

function show(frame) {
  frames += 1;
  status();
  setText(find("node"), frame.node.name || "cpuwarden");
  document.title = `${frame.node.name || "node"} · cpuwarden`;
  facts(find("facts"), frame, store.recording);
  announce();
  if (frames % (EVERY[viewName()] ?? 1) === 0 || frames === 1) current.update();
}

/** Time without a new frame after which the figures are not live, milliseconds. */
const SILENT = 5000;
const STATES = { connecting: "connecting", live: "live", paused: "paused", lost: "reconnecting", recording: "" };
function status() {
  const silent = performance.now() - store.heardAt;
  // With longer sample intervals, frames are rarer; a recording ends.
  const isSilent = !store.recording && silent > Math.max(SILENT, 2500 * (store.frame?.seconds ?? 0));
  const running = store.recording ? "recording" : store.recording === null ? "connecting" : "live";
  const name = paused || store.window ? "paused" : connection === "lost" ? "lost" : isSilent ? "silent" : running;
  live.dataset.state = name;
  if (store.window) { setText(live, `shows ${windowText(store.window)}`); return; }
  const recorded = store.recording && store.frame ? `recording ${dateTime(store.frame.atMs)}` : "";
  setText(live, [STATES[name] ?? `no data for ${Math.floor(silent / 1000)} s`, recorded].filter(Boolean).join(", "));
  // For readers without sight: only what is new, not each second.
  setText(find("status"), `${(STATES[name] ?? "no data") || "recording"}. ${store.frame ? headline(store.frame) : ""}`);
}

function setPaused(value) {
  paused = value;
  store.hold(paused);
  setText(pause, paused ? "Continue" : "Pause");
  pause.setAttribute("aria-pressed", String(paused));
  status();
  announce();
  if (!paused && store.frame) show(store.frame);
}

const KEYS = [
  ["↓ ↑ j k", "next or previous row of the list: victims, aggressors, findings"], ["Enter", "open the pod; in the filter, the first match"], ["Esc", "back to all pods"], ["/", "filter the list: all words must match, and none after ! or -"], ["s", "sort by the next column"],
  ["a", "reverse the view: who makes others wait"], ["m", "matrix of victims and aggressors"], ["t", "topology"], ["f", "findings: what to change"], ["p", "pause or continue"], ["[ ]", "earlier or later by the length of the window"], ["n", "back to now"], ["z", "times in UTC or in local time"], ["?", "this help"],
];

/** The words for CPU time, as in the terminal and the documentation. */
const WORDS = [
  ["used", "CPU time used each second, in cores"],
  ["limit", "the lowest CPU limit over the container, its pod and above, in cores"],
  ["throttled", "share of the time in which a CPU limit stopped it: its own, or one above it"],
  ["waited", "share of the time in which it was ready to run, but others ran: other pods, or the host"],
  ["lost", "time throttled, and waited for others"],
  ["slowed ×", "how many times longer its work took than without the lost time, and by whom"],
];

function help() {
  const list = (title, entries) => [h("h3", null, title), h("dl", null, entries.flatMap(([name, text]) => [h("dt", null, name), h("dd", null, text)]))];
  dialog.replaceChildren(
    // The first button gets the focus: at the end, the help would open there.
    h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, "Help"), h("button", null, "Close")),
    ...list("Keys", KEYS.map(([key, text]) => [key.split(" ").map((part) => h("kbd", null, part)), text])),
    ...list("Words", WORDS), ...list("Columns", COLUMNS.map((column) => [fullLabel(column), column.help])));
  dialog.showModal();
  dialog.scrollTop = 0;
}

const turnPause = () => store.window ? bar.choose(null) : setPaused(!paused);
const ACTIONS = {
  j: () => current.selection.move(1), ArrowDown: () => current.selection.move(1), k: () => current.selection.move(-1), ArrowUp: () => current.selection.move(-1),
  Enter: () => current.selection.open(), s: () => current.cycle?.(), p: turnPause, "?": help, "[": () => bar.move(-1), "]": () => bar.move(1), n: () => bar.choose(null), z: () => bar.turnZone(),
  a: () => go(current === views.aggressors ? "#pods" : "#aggressors"), m: () => go(current === views.matrix ? "#pods" : "#matrix"), t: () => go(current === views.topology ? "#pods" : "#topology"),
  f: () => go(current === views.advice ? "#pods" : "#advice"), Escape: () => go("#pods"), "/": () => { if (!current.input) { go("#pods"); route(); } current.input.focus(); },
};
/** Keys that mean something only in a list. */
const ROWS = new Set(["j", "k", "ArrowDown", "ArrowUp", "Enter"]);

document.addEventListener("keydown", (event) => {
  const action = ACTIONS[event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
  const focus = document.activeElement;
  if (focus && focus === current.input) {
    if (event.key === "Escape") focus.blur();
    else if (event.key === "Enter") current.selection.open();
    else if (event.key === "ArrowDown") current.selection.move(0);
    else return;
    event.preventDefault();
    return;
  }
  const isOther = focus?.closest(event.key === "Enter" ? "a, button, select" : "select") && !current.selection?.hasFocus();
  if (ROWS.has(event.key) && (!current.selection || isOther)) return;
  event.preventDefault();
  action();
});

pause.addEventListener("click", turnPause);
find("help").addEventListener("click", help);
addEventListener("hashchange", route);
// A page that the browser keeps for the way back would hold one of its six connections to the agent.
addEventListener("pagehide", () => store.disconnect());
addEventListener("pageshow", (event) => { if (event.persisted) store.connect(); });
bar.onzone = () => { status(); if (store.frame) redraw(); };
store.on("frame", (frame) => {
  bar.add(frame);
  if (!paused && !store.window) show(frame);
});
store.on("state", (name) => { connection = name; status(); });
store.on("kind", () => {
  status();
  bar.load();
  if (store.frame && !store.window) show(store.frame);
  current.update(true);
});
setInterval(status, 1000);
route();
store.connect();
