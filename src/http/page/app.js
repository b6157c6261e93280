"use strict";
// The live event stream and the approvals that wait. Whatever comes from outside is put into the
// page as text, never as markup.

const KEPT = 2000; // Events on the page; older ones leave.
const byId = (id) => document.getElementById(id);
const list = byId("events");
const filters = { session: byId("filter-session"), type: byId("filter-type") };
const known = new Set();
let paused = false;
let held = [];
let total = 0;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// ---- events ----

const MOOD = {
  done: "good", tool_call_completed: "good", approval_decided: "good",
  waiting_for_approval: "warn", tool_call_retrying: "warn", step_retrying: "warn",
  approval_expired: "warn", message_discarded: "warn", late_result: "warn", server_draining: "warn",
  error: "bad", tool_call_failed: "bad", authorization_denied: "bad", stream_broken: "bad",
};

function gist(event) {
  const parts = [];
  if (event.tool) parts.push(event.tool);
  if (event.plan) parts.push(event.plan.purpose + " · " + event.plan.max_risk_level);
  if (event.arguments !== undefined) parts.push(short(event.arguments));
  if (event.result !== undefined) parts.push("→ " + short(event.result));
  if (event.iteration !== undefined) parts.push("iteration " + event.iteration);
  if (event.outcome) parts.push(event.outcome);
  if (event.text) parts.push("“" + short(event.text) + "”");
  if (event.error) parts.push(short(event.error));
  if (event.reason) parts.push(short(event.reason));
  if (event.usage) parts.push(event.usage.input_tokens + " in, " + event.usage.output_tokens + " out");
  if (event.owner) parts.push("for " + event.owner);
  return parts.join("  ");
}

function short(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const line = text.replace(/\s+/g, " ");
  return line.length > 160 ? line.slice(0, 159) + "…" : line;
}

function matches(event) {
  const session = filters.session.value.trim().toLowerCase();
  const type = filters.type.value.trim().toLowerCase();
  return (!session || String(event.session_id).toLowerCase().includes(session)) &&
    (!type || event.type.toLowerCase().includes(type));
}

function row(event) {
  const details = element("details", "event " + (MOOD[event.type] || ""));
  const summary = element("summary");
  const at = new Date(event.at);
  const time = element("time", "", at.toLocaleTimeString([], { hour12: false }) + "." +
    String(at.getMilliseconds()).padStart(3, "0"));
  time.dateTime = event.at;
  const session = element("span", "session", String(event.session_id).slice(-8));
  session.title = event.session_id;
  summary.append(time, session, element("span", "type", event.type),
    element("span", "gist", gist(event)));
  details.append(summary);
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) {
      details.append(element("pre", "", JSON.stringify(event, null, 2)));
    }
  });
  details.shownEvent = event;
  details.hidden = !matches(event);
  return details;
}

function atNewest() {
  return list.scrollHeight - list.scrollTop - list.clientHeight < 40;
}

function show(events) {
  const follow = atNewest();
  const fragment = document.createDocumentFragment();
  for (const event of events) {
    fragment.append(row(event));
    if (!known.has(event.type)) {
      known.add(event.type);
      const option = element("option");
      option.value = event.type;
      byId("types").append(option);
    }
  }
  list.append(fragment);
  while (list.childElementCount > KEPT) list.firstElementChild.remove();
  total += events.length;
  if (follow) list.scrollTop = list.scrollHeight;
  byId("newest").hidden = atNewest();
  count();
}

function count() {
  const waiting = held.length ? ", " + held.length + " held back" : "";
  byId("shown").textContent = total + " events" + waiting;
}

// What comes within one frame of the display is shown together.
let arrived = [];
let scheduled = false;
function take(event) {
  if (paused) {
    held.push(event);
    if (held.length > KEPT) held.shift();
    return count();
  }
  arrived.push(event);
  if (arrived.length > KEPT) arrived.shift();
  if (scheduled) return;
  scheduled = true;
  const draw = () => { scheduled = false; const events = arrived; arrived = []; show(events); };
  if (document.hidden) setTimeout(draw, 500); else requestAnimationFrame(draw);
}

// ---- approvals ----

async function call(path, options) {
  const answer = await fetch(path, { credentials: "same-origin", ...options });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(body.detail || answer.statusText), { status: answer.status });
  return body;
}

let refreshing = false;
let again = false;
async function refreshApprovals() {
  if (refreshing) { again = true; return; }
  refreshing = true;
  try {
    const found = await call("/agent/approvals?state=pending&limit=100");
    showApprovals(found.approvals.reverse());
  } catch (error) {
    if (error.status === 401) signedOut();
  }
  refreshing = false;
  if (again) { again = false; refreshApprovals(); }
}

function showApprovals(plans) {
  const place = byId("approvals-list");
  const there = new Map([...place.children].map((item) => [item.dataset.plan, item]));
  for (const plan of plans) {
    if (there.has(plan.plan_id)) there.delete(plan.plan_id);
    else place.append(planItem(plan));
  }
  for (const gone of there.values()) gone.remove();
  byId("approvals-none").hidden = plans.length > 0;
  byId("approvals-count").textContent = plans.length;
  document.title = plans.length ? "(" + plans.length + ") Greenroom" : "Greenroom";
}

// 75 becomes "1:15".
function clock(seconds) {
  const rest = String(seconds % 60).padStart(2, "0");
  return Math.floor(seconds / 60) + ":" + rest;
}

// A step of a plan is a call; one of a preflight may leave its arguments or even its tool open.
function stepWords(step) {
  const passed = step.arguments === undefined ? "" : " " + JSON.stringify(step.arguments);
  return (step.tool || step.toolName || "") + passed;
}

function planItem(plan) {
  const item = element("li", "plan " + plan.max_risk_level);
  item.dataset.plan = plan.plan_id;
  const head = element("div", "plan-head");
  head.append(element("strong", "", plan.purpose),
    element("span", "risk " + plan.max_risk_level, plan.max_risk_level.replaceAll("_", " ")),
    element("span", "quiet", plan.user_id + " · session " + plan.session_id.slice(-8)));
  const left = element("span", "quiet countdown");
  left.dataset.deadline = plan.deadline || "";
  head.append(left);
  const actions = element("div", "plan-actions");
  const error = element("p", "plan-error");
  error.setAttribute("role", "alert");
  for (const [decision, label] of [["approve", "Approve"], ["reject", "Reject"]]) {
    const button = element("button", decision, label);
    button.type = "button";
    button.setAttribute("aria-label", label + ": " + plan.purpose);
    button.addEventListener("click", () => decide(plan, decision, actions, error));
    actions.append(button);
  }
  head.append(actions);
  const steps = element("ol");
  for (const step of plan.steps) {
    const line = element("li");
    line.append(element("code", "", stepWords(step)), " ",
      element("span", "risk " + step.risk, step.risk.replaceAll("_", " ")), " ",
      element("span", "quiet", step.why || step.description || ""));
    steps.append(line);
  }
  item.append(head, steps, error);
  return item;
}

async function decide(plan, decision, actions, error) {
  const buttons = [...actions.children];
  buttons.forEach((button) => { button.disabled = true; });
  error.textContent = "";
  try {
    await call("/agent/approvals/" + encodeURIComponent(plan.plan_id), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ decision }),
    });
  } catch (failure) {
    error.textContent = failure.message;
    buttons.forEach((button) => { button.disabled = false; });
  }
  refreshApprovals();
}

setInterval(() => {
  for (const place of document.querySelectorAll(".countdown")) {
    if (!place.dataset.deadline) continue;
    const seconds = Math.round((Date.parse(place.dataset.deadline) - Date.now()) / 1000);
    place.textContent = seconds > 0 ? clock(seconds) + " left" : "expired";
  }
}, 500);

// ---- connection ----

const state = byId("connection");
function connection(kind, text) {
  state.className = "state " + kind;
  state.textContent = text;
}

let source = null;
function signedOut() {
  if (source) source.close();
  connection("closed", "signed out: open the link that the server printed at start");
}

function connect() {
  source = new EventSource("/admin/events");
  source.onopen = () => { connection("live", "live"); refreshApprovals(); };
  source.onmessage = (message) => {
    let event;
    try { event = JSON.parse(message.data); } catch { return; }
    if (event.type === "waiting_for_approval" || event.type.startsWith("approval_")) refreshApprovals();
    take(event);
  };
  source.onerror = async () => {
    connection("connecting", "reconnecting");
    if (source.readyState !== EventSource.CLOSED) return;
    // A refusal closes the stream for good; find out whether it is worth trying again.
    try { await call("/agent/approvals?state=pending&limit=1"); }
    catch (error) { if (error.status === 401) return signedOut(); }
    setTimeout(connect, 2000);
  };
}

// ---- controls ----

for (const filter of Object.values(filters)) {
  filter.addEventListener("input", () => {
    for (const shown of list.children) shown.hidden = !matches(shown.shownEvent);
    list.scrollTop = list.scrollHeight;
  });
}
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Resume" : "Pause";
  if (!paused) { const events = held; held = []; show(events); }
});
byId("clear").addEventListener("click", () => {
  list.replaceChildren();
  held = [];
  total = 0;
  count();
});
byId("newest").addEventListener("click", () => { list.scrollTop = list.scrollHeight; });
list.addEventListener("scroll", () => { byId("newest").hidden = atNewest(); });

connect();
